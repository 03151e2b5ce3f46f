"""Scores of runs side by side, and how far each is from the first.

None is marked as the best: every run is one seed, and the best of a few seeds is chance.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from suture.evaluation.titles import SCORES, SETS, set_meanings
from suture.reports.run_facts import RunFacts, read_runs

# The terminal's table has what 80 columns hold.
_SHOWN = 6
_ACROSS = 31
"""Columns of confusion tables that stand beside each other on a laptop's screen, 1280 pixels wide."""


@dataclass(frozen=True)
class Cell:
    """One score of one run beside the others'."""

    text: str
    value: float | None
    difference: str = ""
    """To the first run, in percent points."""


def percent(value: float | None) -> str:
    """A share of 1 in percent."""
    return "–" if value is None else f"{100 * value:.1f}"


def side_by_side(values: Sequence[float | None]) -> list[Cell]:
    """The cells of one score of several runs.

    >>> [(cell.text, cell.difference) for cell in side_by_side([0.5, 0.625])]
    [('50.0', ''), ('62.5', '+12.5')]
    """
    cells = []
    for place, value in enumerate(values):
        difference = ""
        if place and value is not None and values[0] is not None:
            # What reads the same is the same.
            apart = round(value, 3) - round(values[0], 3)
            difference = f"{100 * apart:+.1f}".replace("-", "−") if round(apart, 3) else "±0.0"
        cells.append(Cell(percent(value), value, difference))
    return cells


def overall(runs: Sequence[RunFacts], which: str) -> list[list[Cell]]:
    """The cells of a set: a list per run, an entry per column."""
    columns = [side_by_side([_of(run, which, "overall", score.key) for run in runs]) for score in SCORES]
    return [list(row) for row in zip(*columns, strict=True)]


def sets(runs: Sequence[RunFacts]) -> list[str]:
    """The sets that at least one run has scores of."""
    return [which for which in SETS if any(which in run.metrics for run in runs)]


def per_class(runs: Sequence[RunFacts], which: str) -> list[dict[str, Any]]:
    """IoU, its deviation over videos, and false presence of each class."""
    rows = []
    for number, name in enumerate(runs[0].classes):
        counts = [_of(run, which, "classes", name, "frames") for run in runs]
        if all(count is None for count in counts):
            continue  # the scores leave it out
        rows.append(
            {
                "name": name,
                "number": number,
                "frames": _first(counts),
                "iou": side_by_side([_of(run, which, "classes", name, "iou") for run in runs]),
                "deviation": [_deviation(_in_videos(run, which, name)) for run in runs],
                "false_presence": side_by_side([_of(run, which, "classes", name, "false_presence") for run in runs]),
            }
        )
    return rows


def per_video(runs: Sequence[RunFacts], which: str) -> dict[str, Any]:
    """mIoU and mIoU per frame of each video, their mean and deviation over videos, and each class in each video."""
    names = list(dict.fromkeys(name for run in runs for name in run.metrics.get(which, {}).get("videos", {})))
    keys = ("miou", "miou_frames")
    table = {key: [[_of(run, which, "videos", name, key) for run in runs] for name in names] for key in keys}
    rows = [
        {
            "name": name,
            "case": runs[0].data["videos"].get(name, {}).get("case", ""),
            "frames": _first(_of(run, which, "videos", name, "frames") for run in runs),
            "scores": [side_by_side(table[key][place]) for key in keys],
            "classes": [[_of(run, which, "videos", name, "class_iou", one) for run in runs] for one in runs[0].classes],
        }
        for place, name in enumerate(names)
    ]
    spread = [[_spread([values[place] for values in table[key]]) for place in range(len(runs))] for key in keys]
    return {
        "rows": rows,
        "spread": spread,
        "class_spread": [[_spread(_in_videos(run, which, name)) for run in runs] for name in runs[0].classes],
        "has_classes": any(_in_videos(run, which, name) for run in runs for name in runs[0].classes),
    }


def confusion(runs: Sequence[RunFacts], which: str) -> dict[str, Any]:
    """The share of each true class's pixels that each run predicts as each class; without those that occur nowhere.

    All runs have the same rows and columns. As many as fit stand beside each other in one table, the others below.
    """
    counts = [run.metrics.get(which, {}).get("confusion") for run in runs]
    matrices = {place: np.array(found)[:-1] for place, found in enumerate(counts) if found is not None}
    names = [*runs[0].classes, "none"]
    seen = np.add.reduce([np.zeros((len(names) - 1, len(names)), int), *matrices.values()])
    rows = np.flatnonzero(seen.sum(1)).tolist()
    columns = np.flatnonzero(seen.sum(0) + np.append(seen.sum(1), 0)).tolist()
    return {
        "without": [place for place, found in enumerate(counts) if found is None],
        "columns": [names[j] for j in columns],
        "tables": [
            {
                "runs": beside,
                "rows": [(names[i], [_row(matrices[place][i], columns, i) for place in beside]) for i in rows],
            }
            for beside in in_tables(list(matrices), len(columns))
        ],
    }


def in_tables(runs: Sequence[int], columns: int) -> list[list[int]]:
    """Runs that stand beside each other, equally many in each table as far as that goes; each has so many columns.

    >>> in_tables([0, 1, 2], 10), in_tables([0, 1, 2, 3], 10), in_tables([0, 1], 36)
    ([[0, 1, 2]], [[0, 1], [2, 3]], [[0], [1]])
    """
    most = max(1, _ACROSS // max(1, columns))
    tables = max(1, math.ceil(len(runs) / most))
    return [part.tolist() for part in np.array_split(runs, tables) if len(part)]


def _row(counts: np.ndarray, columns: Sequence[int], right: int) -> dict[str, Any]:
    """One true class: its pixels, and what share and how many of them are taken for each class."""
    pixels = int(counts.sum())
    return {
        "pixels": pixels,
        "cells": [(float(counts[j] / max(1, pixels)), int(counts[j]), j == right) for j in columns],
    }


def scored_sets(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Everything the page shows of every set that has scores."""
    return [
        {
            "key": which,
            "title": SETS[which].title,
            "overall": overall(runs, which),
            "classes": per_class(runs, which),
            "videos": per_video(runs, which),
            "confusion": confusion(runs, which),
            "about": next(run.metrics[which] for run in runs if which in run.metrics),
            "intervals": [run.metrics.get(which, {}).get("primary", {}).get("interval") for run in runs],
        }
        for which in sets(runs)
    ]


def columns(scored: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """The kinds of scores, explained."""
    if not scored:
        return []
    tolerance = scored[0]["about"]["boundary_tolerance"]
    return [{"key": c.key, "title": c.title, "meaning": c.meaning.format(tolerance=tolerance)} for c in SCORES]


def _in_videos(run: RunFacts, which: str, name: str) -> list[float]:
    """The IoU of a class in each video that shows it, and 0 where it is only predicted."""
    videos = run.metrics.get(which, {}).get("videos", {})
    found = (_of(run, which, "videos", video, "class_iou", name) for video in videos)
    return [value for value in found if value is not None]


def _deviation(values: Sequence[float]) -> str:
    """A dash where there is a single value; nothing where there is none."""
    if not values:
        return ""
    return f"±\u00a0{percent(float(np.std(values, ddof=1)) if len(values) > 1 else None)}"


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{percent(float(np.mean(known)))} {_deviation(known)}" if known else "–"


def _of(run: RunFacts, which: str, *path: str) -> Any:
    """A value somewhere in a run's metrics; None where there is none."""
    found: Any = run.metrics.get(which, {})
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _first(values: Sequence[Any] | Iterator[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def scores_table(runs: Sequence[Path], metrics: Sequence[dict[str, Any]] | None = None) -> Table:
    """The scores of runs for the terminal: new videos and completion, a row per run; and what the sets are and the
    scores leave out.

    They are those in the run folders, unless others are given.

    >>> Console().print(scores_table([Path("runs/supervised"), Path("runs/pgvcl")]))  # doctest: +SKIP
    """
    facts = read_runs(runs)
    if metrics is not None:
        facts = [replace(run, metrics=own) for run, own in zip(facts, metrics, strict=True)]
    shown = sets(facts)
    said = (note for which in shown for run in facts for note in run.metrics.get(which, {}).get("notes", ()))
    caption = Text("\n".join([set_meanings(shown), *dict.fromkeys(said)]))
    table = Table(title="Scores (%)", title_justify="left", caption=caption, caption_justify="left")
    table.add_column("scored on", no_wrap=True)
    table.add_column("run", overflow="fold")
    for score in SCORES[:_SHOWN]:
        table.add_column(score.title.replace(" ", "\n"), justify="right")  # leaves room for the run's name
    for which in shown:
        for place, (run, cells) in enumerate(zip(facts, overall(facts, which), strict=True)):
            values = [cell.text for cell in cells[:_SHOWN]]
            table.add_row(
                SETS[which].name if place == 0 else "", Text(run.name), *values, end_section=place == len(facts) - 1
            )
    return table
