"""Scores side by side, on the page and in the terminal."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from tiny_runs import Runs

from suture.core.io import read_json
from suture.reports.reported_run import read_runs
from suture.reports.scores_section import score_cells, scores_table, video_scores


def printed(*runs: Path, metrics: list[dict[str, Any]] | None = None, width: int = 200, **options: Any) -> str:
    """The terminal's table."""
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(scores_table(runs, metrics))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_differences_to_the_first_run() -> None:
    assert [cell.difference for cell in score_cells([0.5, 0.4, 0.5004])] == ["", "−10.0", "±0.0"]
    assert [(cell.text, cell.difference) for cell in score_cells([None, 0.5])] == [("–", ""), ("50.0", "")]


def test_deviation_needs_two_videos(runs: Runs) -> None:
    (run,) = read_runs([runs.supervised])
    metrics, names = run.metrics, run.classes[:2]
    for video, iou in zip(metrics["completion"]["videos"].values(), (0.5, 0.25, 0.0), strict=True):
        video["class_iou"] = dict.fromkeys(run.classes) | {names[0]: iou} | ({names[1]: 0.5} if iou == 0.5 else {})
    spread = video_scores([metrics], run.classes, "completion", run.data["videos"])["class_spread"]
    assert spread[:3] == [["25.0 ±\u00a025.0"], ["50.0 ±\u00a0–"], ["–"]]


def test_best_of_single_seeds_is_not_marked(runs: Runs) -> None:
    metrics = read_json(runs.supervised / "metrics.json")
    better = {which: one | {"overall": dict.fromkeys(one["overall"], 0.999)} for which, one in metrics.items()}
    text = printed(runs.supervised, runs.pgvcl, metrics=[metrics, better], force_terminal=True)
    scores = [line for line in text.splitlines() if "99.9" in line]
    assert len(scores) == 3
    assert not any("\x1b[1m" in line for line in scores)


def test_terminal_table_has_every_run_and_set(runs: Runs) -> None:
    text = printed(runs.supervised, runs.pgvcl)
    assert [text.count(name) for name in ("supervised", "pgvcl", "│ test ", "│ completion ")] == [3, 3, 1, 1]
    assert "test, validation: new videos; completion: the unlabelled frames" in text


def test_default_name_is_whole_in_80_columns(runs: Runs, copy_run: Callable[..., Path]) -> None:
    run = copy_run(runs.supervised, "videos-supervised-0")
    assert printed(run, width=80).count("│ videos-supervised-0 │") == 3


def test_note_of_several_sets_is_printed_once(runs: Runs) -> None:
    metrics = read_json(runs.supervised / "metrics.json")
    metrics["val"]["notes"] = metrics["test"]["notes"] = ["[gauze] left out of validation: no training video shows it"]
    text = printed(runs.supervised, runs.pgvcl, metrics=[metrics, metrics])
    assert text.count("[gauze] left out of validation: no training video shows it") == 1
