"""The scores and paired differences that the docs and the README state are those of the committed runs."""

import csv
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from suture.comparison.results import mean_and_deviation, read_results

ROOT = Path(__file__).parents[2]
FOLDER = "docs/results/vocalfolds"
SECTIONS = {
    ("results", "Stitch on the test sequences"): FOLDER,
    ("results", "A new patient"): "docs/results/vocalfolds-patients",
    ("results", "With SAM 2's encoder"): "docs/results/vocalfolds-sam2",
    ("results", "At 384×384"): "docs/results/vocalfolds-384",
    ("method", "Each part removed"): "docs/results/vocalfolds-ablation",
}
"""Whose runs the tables of a page's section are of."""
SCORES = [f"{which}, {key}" for which in ("new videos (test)", "completion") for key in ("mIoU", "mIoU per frame")]
PLACES = {"every 20th": "every-20", "every 10th": "every-10", "both": "together"}
WHERE = r"(?: (patient \d) \|)? (every 20th|every 10th|both|all)"
"""The new patient, in the table of patients, and the labelling."""
ROW = re.compile(rf"^\| (\S+) − (\S+) \|{WHERE} \| (.*) \|$", re.MULTILINE)


def sections() -> list[tuple[str, str]]:
    """Each folder of runs with what its section says of it, bold or not."""
    found = []
    for (page, title), folder in SECTIONS.items():
        text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8").replace("**", "")
        found.append((folder, dict(part.split("\n", 1) for part in text.split("\n## "))[title]))
    return found


SCRIPT = runpy.run_path(str(ROOT / "docs/results/pairs.py"))
found = cache(lambda folder: read_results(ROOT / folder))


@cache
def pairs(method: str, other: str, folder: str = FOLDER) -> str:
    """What the script prints."""
    return str(SCRIPT["compared"](found(folder), method, other))


def test_the_stated_differences_are_those_of_the_runs() -> None:
    rows = [(folder, *row) for folder, text in sections() for row in ROW.findall(text)]
    assert {folder for folder, *_ in rows} == set(SECTIONS.values())
    for folder, method, other, patient, place, stated in rows:
        printed = pairs(method, other, folder)
        head = f"{patient.replace(' ', '-')}: {method} − {other}" if patient else f"{method} − {other}"
        for score, cell in zip(SCORES, stated.split(" | "), strict=True):
            found = re.search(
                rf"^{head}: {re.escape(score)}\n(?:  .*\n)*?  {PLACES[place]} +(.*?\])", printed, re.MULTILINE
            )
            if cell == "–":  # with all labels nothing is left to complete
                assert not found
                continue
            assert found, (method, other, score)
            assert re.sub(r"\s+", "", found[1]) == re.sub(r"\s+", "", cell.replace("−", "-")), (method, other, score)


SCORED = re.compile(rf"^\| (\S+) \|{WHERE} \| (\d) \| (.*) \|$", re.MULTILINE)
SETS = [(which, key) for which in ("test", "completion") for key in ("miou", "miou_frames")]


def test_the_stated_scores_are_those_of_the_runs() -> None:
    rows = [(folder, *row) for folder, text in sections() for row in SCORED.findall(text)]
    assert {folder for folder, *_ in rows} == set(SECTIONS.values())
    for folder, method, patient, place, seeds, stated in rows:
        dataset = patient.replace(" ", "-") or "sequences"
        for (which, key), cell in zip(SETS, stated.split(" | "), strict=True):
            values = scores(method, PLACES.get(place, place), which, key, dataset, folder)
            assert cell == mean_and_spread(values), (method, place, which, key)
            assert len(values) in (int(seeds), 0)


def test_so_are_those_of_the_classes() -> None:
    text = dict(sections())[FOLDER]
    head = re.search(r"^\| IoU on new videos \| labelled \| (.*) \|$", text, re.MULTILINE)
    assert head
    names = head[1].split(" | ")
    stated = re.findall(rf"^\| (\S+) \|{WHERE}((?: \| [\d.]+){{{len(names)}}}) \|$", text, re.MULTILINE)
    assert len(stated) > 10
    runs = [run for board in found(FOLDER).boards for run in board.runs]
    for method, _, place, cells in stated:
        same = [run.metrics["test"]["classes"] for run in runs if run.place[1:3] == (PLACES.get(place, place), method)]
        means = [mean_and_deviation([100 * run[name]["iou"] for run in same])[0] for name in names]
        assert cells.split(" | ")[1:] == [f"{mean:.1f}" for mean in means], (method, place)


FRONT = re.compile(r"^\| (.+?)((?: \| (?:–|[\d.]+ ± [\d.]+)){4}) \|$", re.MULTILINE)
NAMES = {
    "PGV-CL": "pgvcl",
    "PGV-CL at its paper's 140 epochs": "pgvcl-140",
    "PixPro": "pixpro",
    "DMT": "dmt",
    "UA-MT": "uamt",
    "UniMatch V2": "unimatch",
    "all 314 labels, plain training": "all-labels",
    "all 314 labels, augmented as strong": "all-labels-strong",
}
COLUMNS = [(place, which) for which in ("test", "completion") for place in ("every-20", "every-10")]


def test_so_are_those_of_the_readme() -> None:
    rows = FRONT.findall((ROOT / "README.md").read_text(encoding="utf-8").replace("**", ""))
    assert len(rows) > 5
    for title, stated in rows:
        name = title.split(" (")[0]
        method = NAMES.get(name, name)
        everything = method.startswith("all-labels")
        said = re.search(r"(\d) seeds\)", title)
        seeds = int(said[1]) if said else 5
        for (place, which), cell in zip(COLUMNS, stated.split(" | ")[1:], strict=True):
            values = scores(method, "all" if everything else place, which, "miou")
            assert cell == mean_and_spread(values), (title, place, which)
            assert len(values) in (seeds, 0), title


@cache
def committed(folder: str) -> list[dict[str, str]]:
    with (ROOT / folder / "runs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def scores(
    method: str, labelling: str, which: str, key: str, dataset: str = "sequences", folder: str = FOLDER
) -> list[float]:
    """Of each seed, in per cent: from the committed CSV, which is held against the runs elsewhere."""
    wanted = {"dataset": dataset, "method": method, "labelling": labelling, "set": which}
    return [100 * float(run[key]) for run in committed(folder) if wanted.items() <= run.items()]


def mean_and_spread(values: list[float]) -> str:
    """Rounded once; the spread of one value is not told, and where there is none there is a dash."""
    if not values:
        return "–"
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def test_all_labels_are_one_labelling_and_each_pair_counts_once() -> None:
    method, other = "all-labels-strong", "all-labels"
    printed = pairs(method, other)
    lines = re.search(rf"^{method} − {other}: {re.escape(SCORES[0])}\n((?:  .*\n?)+)", printed, re.MULTILINE)
    assert lines
    rows = dict(line.split(maxsplit=1) for line in lines[1].splitlines())
    assert list(rows) == ["all", "together", "seeds"]
    assert len(set(rows.values())) == 1
    ours, theirs = (scores(name, "all", "test", "miou") for name in (method, other))
    each = " ".join(f"{a - b:+.1f}" for a, b in zip(ours, theirs, strict=True))
    assert re.fullmatch(rf"\+4\.5 \[ *\+2\.2, *\+6\.7\]  5 of 5  \({re.escape(each)}\)", rows["all"])


def test_methods_without_a_pair_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["docs/results/pairs.py", FOLDER, "stitch", "nothing"])
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"]()
    assert ended.value.code == 2
    assert "no dataset, labelling and seed of both stitch and nothing" in capsys.readouterr().err


def test_it_ends_quietly_where_nobody_reads_on() -> None:
    command = [sys.executable, "docs/results/pairs.py", FOLDER, "stitch", "twice"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("score", ["NSD", "IoU of pathology", "mIoU without pathology", "mIoU of seq4"])
def test_also_of_outlines_classes_and_videos(score: str) -> None:
    assert f"stitch − twice: new videos (test), {score}\n" in pairs("stitch", "twice")


def test_what_was_reached_is_what_the_sections_say() -> None:
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    parts = dict(part.split("\n", 1) for part in page.split("\n## ") if "\n" in part)
    aims = re.findall(r"[+−][\d.]+ \[[+−][\d.]+, [+−][\d.]+\]", parts.pop("What was aimed at"))
    below = " ".join(" ".join(parts.values()).split())
    assert len(aims) > 15
    assert [reached for reached in aims if reached.removeprefix("+") not in below] == []
