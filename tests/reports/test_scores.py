"""Scores side by side, in the page's cells and in the terminal."""

import io
import shutil
from pathlib import Path

from rich.console import Console
from tiny_runs import Runs

from suture.core.io import read_json
from suture.reports.run_facts import read_runs
from suture.reports.scores_section import per_class, per_video, scores_table, side_by_side


def test_differences_to_the_first() -> None:
    first, second, third = side_by_side([0.5, 0.4, 0.5004])
    assert first.difference == ""
    assert second.difference == "−10.0"
    assert third.difference == "±0.0", "what reads the same is the same"


def test_missing_scores() -> None:
    missing, known = side_by_side([None, 0.5])
    assert (missing.text, known.text, known.difference) == ("–", "50.0", "")


def test_a_deviation_takes_two_videos(runs: Runs) -> None:
    """Of one there is a dash, and not nothing."""
    (run,) = read_runs([runs.supervised])
    names = run.classes[:2]
    for video, found in zip(run.metrics["completion"]["videos"].values(), (0.5, 0.25, 0.0), strict=True):
        video["class_iou"] = dict.fromkeys(run.classes) | {names[0]: found} | ({names[1]: 0.5} if found == 0.5 else {})
    deviations = {row["name"]: row["deviation"] for row in per_class([run], "completion")}
    assert [deviations[name] for name in names] == [["±\u00a025.0"], ["±\u00a0–"]]
    spread = per_video([run], "completion")["class_spread"]
    assert spread[:3] == [["25.0 ±\u00a025.0"], ["50.0 ±\u00a0–"], ["–"]]


def test_the_best_of_single_seeds_is_not_marked(runs: Runs) -> None:
    """It is chance, so that a terminal prints no score in bold."""
    metrics = read_json(runs.supervised / "metrics.json")
    better = {which: one | {"overall": dict.fromkeys(one["overall"], 0.999)} for which, one in metrics.items()}
    out = Console(file=io.StringIO(), width=200, force_terminal=True)
    out.print(scores_table([runs.supervised, runs.pgvcl], [metrics, better]))
    scores = [line for line in out.file.getvalue().splitlines() if "99.9" in line]  # type: ignore[attr-defined]
    assert len(scores) == 3
    assert not any("\x1b[1m" in line for line in scores)


def test_table_for_the_terminal(runs: Runs) -> None:
    out = Console(file=io.StringIO(), width=200)
    out.print(scores_table([runs.supervised, runs.pgvcl]))
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert [said.count(name) for name in ("supervised", "pgvcl", "│ test ", "│ completion ")] == [3, 3, 1, 1]
    assert "test, validation: new videos; completion: the unlabelled frames" in said


def test_a_name_by_default_is_whole_in_80_columns(runs: Runs, tmp_path: Path) -> None:
    run = tmp_path / "videos-supervised-0"
    shutil.copytree(runs.supervised, run)
    out = Console(file=io.StringIO(), width=80)
    out.print(scores_table([run]))
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("│ videos-supervised-0 │") == 3


def test_completion_is_explained_only_where_it_is(runs: Runs) -> None:
    metrics = read_json(runs.supervised / "metrics.json")
    captions = {
        which: str(scores_table([runs.supervised], [{which: metrics[which]}]).caption)
        for which in ("test", "completion")
    }
    assert captions == {
        "test": "test: new videos",
        "completion": "completion: the unlabelled frames of labelled training videos",
    }


def test_what_the_scores_leave_out_is_told_once(runs: Runs) -> None:
    metrics = read_json(runs.supervised / "metrics.json")
    metrics["val"]["notes"] = metrics["test"]["notes"] = ["[gauze] left out of validation: no training video shows it"]
    out = Console(file=io.StringIO(), width=200)
    out.print(scores_table([runs.supervised, runs.pgvcl], [metrics, metrics]))
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("[gauze] left out of validation: no training video shows it") == 1
