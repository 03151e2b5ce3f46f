"""Scores side by side, in the page's cells and in the terminal."""

import io

from rich.console import Console
from tiny_runs import Runs

from suture.files import read_json
from suture.report.scores import scores_table, side_by_side


def test_best_and_difference() -> None:
    first, second, third = side_by_side([0.5, 0.4, 0.5004])
    assert (first.best, second.best, third.best) == (True, False, True), "what reads the same is the same"
    assert second.difference == "−10.0"
    assert third.difference == "±0.0"


def test_lower_is_better_for_false_presence() -> None:
    first, second = side_by_side([0.2, 0.1], lower=True)
    assert not first.best
    assert second.best
    assert second.difference == "−10.0"


def test_steadiness_is_best_near_the_truth() -> None:
    lagging, flickering, right = side_by_side([0.99, 0.5, 0.79], target=0.8)
    assert (lagging.best, flickering.best, right.best) == (False, False, True)


def test_missing_and_single_scores() -> None:
    missing, known = side_by_side([None, 0.5])
    assert (missing.text, missing.best, known.best, known.difference) == ("–", False, False, "")
    assert not side_by_side([0.5])[0].best


def test_table_for_the_terminal(runs: Runs) -> None:
    out = Console(file=io.StringIO(), width=200)
    out.print(scores_table([runs.supervised, runs.pgvcl]))
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert [said.count(name) for name in ("supervised", "pgvcl", "│ test ", "│ completion ")] == [3, 3, 1, 1]
    assert "test, validation: new videos; completion: the unlabelled frames" in said


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
