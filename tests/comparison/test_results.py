"""The one table of results: from run folders, through CSV, to the tables of pages; and the committed ones."""

import csv
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from by_hand import scores, write_plan
from rich.console import Console

from suture.comparison.board import boards
from suture.comparison.compare import show_tables, to_markdown, write_tables
from suture.comparison.effects import effects_table
from suture.comparison.plan import Comparison, read_plan
from suture.comparison.results import Results, merged, read_results
from suture.core.errors import UserError
from suture.core.io import read_yaml, write_json

Write = Callable[..., Path]
COMMITTED = Path(__file__).parents[2] / "research" / "results"
PLANS = sorted(plan for plan in COMMITTED.glob("*.yaml") if plan.with_suffix(".csv").exists())
read_committed: Callable[[Path], Results] = cache(read_results)


@pytest.mark.parametrize("path", sorted(COMMITTED.glob("*.csv")), ids=lambda path: path.stem)
def test_committed_tables_are_made_of_the_csv(path: Path) -> None:
    expected = path.with_suffix(".md").read_text(encoding="utf-8")
    assert to_markdown(read_committed(path)) == expected, f"run suture compare --tables {path}"


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
def test_committed_plans_are_those_of_the_runs(plan: Path) -> None:
    """Plans with settings that are gone name the commit that they need."""
    results = read_committed(plan.with_suffix(".csv"))
    if re.search("at commit [0-9a-f]{7}", plan.read_text()):
        Comparison(**read_yaml(plan))
    else:
        planned = read_plan(plan)
        assert [run.key for run in planned.runs] == results.keys
        assert {name: of for name, of in planned.roles.items() if of} == {k: v for k, v in results.roles.items() if v}


def test_csv_gives_the_same_tables_as_the_runs(tmp_path: Path, write_run: Write) -> None:
    data = {"classes": [{"name": "tool", "color": [0, 0, 0]}]}
    names = []
    for method, value in (("supervised", 0.5), ("pgvcl", 0.6), ("stitch", 0.7)):
        for seed in range(2):
            config = {"method": {"name": "stitch", "train": {"steps": seed}}} if method == "stitch" else {}
            metrics = {"test": scores(value, videos={"1": value}, classes={"tool": value}, interval=[0.1, 0.9])}
            names.append(write_run(f"d__every-10__{method}__P0__seed-{seed}", metrics, data=data, config=config).name)
    write_plan(tmp_path, [*names, "d__all__dmt__seed-0"], reference="supervised", proposed="stitch")
    write_json(tmp_path / "failed.json", {"d__all__dmt__seed-0": "cannot read /data/Doe, John/case01.mp4: copy it."})
    results = read_results(tmp_path)
    results.write_csv(tmp_path / "p.csv")
    again = read_results(tmp_path / "p.csv")
    assert again.runs == results.runs
    assert to_markdown(again) == to_markdown(results)
    assert "Failed (cannot read case01.mp4: copy it.): 1 of 7 runs (d__all__dmt__seed-0)." in to_markdown(again)
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    (row,) = (one for one in rows if (one["method"], one["seed"], one["scope"]) == ("pgvcl", "1", "class"))
    assert (row["name"], row["iou"], row["set"]) == ("tool", "0.6", "test")


def test_runs_that_no_plan_names_are_told_apart_by_dataset_and_options(tmp_path: Path, write_run: Write) -> None:
    runs = (
        ("cadis", {"task": 1}, "cadis, task=1"),
        ("cadis", {"task": 2, "leave_out": "/data/Doe, John/bad.csv"}, "cadis, leave_out=bad.csv, task=2"),
        ("hernia", {}, "hernia"),
    )
    for number, (dataset, options, _) in enumerate(runs):
        config = {"seed": 0, "data": {"root": "data", "size": 64, "labelling": {"every": 10}, "options": options}}
        write_run(f"of-{number}", {"test": scores(0.5)}, data={"dataset": dataset}, config=config)
    result = boards(read_results(tmp_path))
    assert [board.title for board in result] == [board.dataset for board in result] == [title for *_, title in runs]
    write_run("of-9", {"test": scores(0.5)}, data={"dataset": "hernia"}, config={"seed": 0})
    with pytest.raises(UserError, match="hernia__every-10__supervised__seed-0 is there twice"):
        read_results(tmp_path)


def test_unscored_and_damaged_runs_are_named(tmp_path: Path, write_run: Write) -> None:
    names = [f"d__every-10__{method}__seed-0" for method in ("supervised", "unscored", "damaged", "missing")]
    write_run(names[0], {"test": scores(0.5)})
    write_run(names[1], {})
    (write_run(names[2], {"test": scores(0.5)}) / "config.yaml").write_text("")
    write_plan(tmp_path, names)
    text = to_markdown(read_results(tmp_path))
    assert f"Nothing scored: 1 of 4 runs ({names[1]})." in text
    assert re.search(rf"Failed \(config.yaml holds nothing.*\): 1 of 4 runs \({names[2]}\)\.", text)
    assert f"Not finished: 1 of 4 runs ({names[3]})." in text


def test_earlier_results_fill_missing_runs(tmp_path: Path, write_run: Write) -> None:
    names = [f"d__every-10__supervised__seed-{seed}" for seed in (0, 1)]
    write_plan(tmp_path, names)
    folder = write_run(names[0], {"test": scores(0.5)})
    earlier = read_results(tmp_path)
    (folder / "metrics.json").unlink()
    write_run(names[1], {"test": scores(0.6)})
    results = merged(read_results(tmp_path), earlier)
    assert [run.key.name for run in results.runs] == names
    assert results.problems == {}


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n"])
def test_another_csv_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "other.csv").write_text(content)
    with pytest.raises(UserError, match=r"other\.csv"):
        read_results(tmp_path / "other.csv")


def test_a_folder_without_finished_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no finished run"):
        read_results(tmp_path)


def test_effects_of_several_settings_are_told_apart(tmp_path: Path, write_run: Write) -> None:
    """By scores that are a sum of them: 4 points for the first setting, −2 for the second, in each of three folds."""
    names = []
    for fold, base in (("seq1", 0.5), ("seq3", 0.6), ("seq5", 0.3)):
        for a in (0, 1):
            for b in (0, 1):
                value = base + 0.04 * a - 0.02 * b
                train = {"cutmix": float(a), "hard": float(b), "follows": float(b)}
                config = {
                    "method": {"name": "stitch", "train": train},
                    "data": {"root": "x", "size": 64, "labelling": {"every": 10}, "validation": [fold]},
                }
                metrics = {
                    which: scores(value, classes={"tool": value, "rare": 0.9}) for which in ("val", "completion")
                }
                metrics["completion"]["classes"]["rare"]["frames"] = 0  # no training video shows it
                data = {"classes": [{"name": name, "color": [0, 0, 0]} for name in ("tool", "rare")]}
                name = f"d__every-10__s{len(names)}__seed-0"
                names.append(write_run(name, metrics, config=config, data=data).name)
    write_plan(tmp_path, names, effects="stitch")
    table = effects_table(read_results(tmp_path))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.groups[0]] == [
        ["cutmix: 0.0 → 1.0", *["+4.0 ± 0.0"] * 4, "+8.0 ± 0.0"],
        ["follows: 0.0 → 1.0", *["−2.0 ± 0.0"] * 4, "−4.0 ± 0.0"],
    ]
    assert "12 runs, 7 degrees of freedom" in table.notes[1]


def test_every_form_of_the_tables_is_written(tmp_path: Path, write_run: Write) -> None:
    for labelling in ("every-10", "every-20"):
        for seed in range(2):
            write_run(f"d__{labelling}__twice__seed-{seed}", {"test": scores(0.5 + 0.01 * seed)})
    write_run("d__all__a_b__seed-0", {"test": scores(0.6)}, size=128)
    for point in ("P0", "P1"):
        write_run(f"e__every-10__pgvcl__{point}__seed-0", {"test": scores(0.5)})
    out = tmp_path / "out"
    write_tables(read_results(tmp_path), out)
    assert sorted(path.name for path in out.iterdir()) == [
        *("results.csv", "results.html", "results.md", "results.tex"),
        *("scores-d.png", "scores-e.png"),
    ]
    page = (out / "results.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert {*re.findall('href="#([^"]+)"', page)} <= {*re.findall('id="([^"]+)"', page)}
    assert r"a\_b" in (out / "results.md").read_text(encoding="utf-8")
    assert (out / "results.tex").read_text(encoding="utf-8").isascii()
    show_tables(out / "results.csv", None, Console(quiet=True))
    again = (out / "results.md").read_text(encoding="utf-8")
    assert again == to_markdown(read_results(out / "results.csv"))


def test_the_terminal_gets_the_primary_scores(tmp_path: Path, write_run: Write) -> None:
    for method, size in (("supervised", 64), ("larger", 128)):
        metrics = {which: scores(0.5, videos={"seqA": 0.6}, per_sequence=True) for which in ("val", "test")}
        write_run(f"d__every-10__{method}__seed-0", metrics, size=size)
    console = Console(record=True, file=(tmp_path / "printed.txt").open("w"), width=80)
    show_tables(tmp_path, None, console)
    printed = console.export_text()
    assert re.search(r"│ larger† +│ +10.0% │ +50.00 │ +50.00 │", printed)
    assert "seqA" not in printed
    assert printed.index("† Not comparable") > printed.index("larger†")


def test_differences_to_one_method_are_printed(tmp_path: Path, write_run: Write) -> None:
    for method, value in (("supervised", 0.5), ("pgvcl", 0.6)):
        for seed in range(2):
            write_run(f"d__every-10__{method}__seed-{seed}", {"test": scores(value + 0.01 * seed)})
    console = Console(record=True, file=(tmp_path / "printed.txt").open("w"), width=120)
    show_tables(tmp_path, None, console, ["pgvcl"], "supervised")
    assert "+10.00 [+10.00, +10.00]" in console.export_text()
    assert not (tmp_path / "results.md").exists()
    with pytest.raises(UserError, match="no labelling and seed of both pgvcl and nothing"):
        show_tables(tmp_path, None, console, ["pgvcl"], "nothing")
