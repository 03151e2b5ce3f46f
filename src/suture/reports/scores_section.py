"""Scores of runs side by side, and their differences to the first run.

No score is marked as the best: every run is one seed, and the best of a few seeds is chance.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table as TerminalTable
from rich.text import Text

from suture.evaluation.titles import SCORES, SETS, set_meanings
from suture.reports.reported_run import ReportedRun, read_runs
from suture.web.table import Table

TERMINAL_SCORES = 6
"""Kinds of scores that fit into a terminal of 80 columns."""
Metrics = Mapping[str, Any]
"""Content of `metrics.json`."""


@dataclass(frozen=True)
class ScoreCell:
    """One score of one run."""

    text: str
    value: float | None
    difference: str = ""
    """Difference to the first run in percent points."""


def percent(value: float | None) -> str:
    """Write a share of 1 in percent."""
    return "–" if value is None else f"{100 * value:.1f}"


def score_cells(values: Sequence[float | None]) -> list[ScoreCell]:
    """Write one score of several runs, with differences of the rounded values.

    >>> [(cell.text, cell.difference) for cell in score_cells([0.5, 0.625])]
    [('50.0', ''), ('62.5', '+12.5')]
    """
    first, *others = values
    cells = [ScoreCell(percent(first), first)]
    for value in others:
        change = None if value is None or first is None else round(round(value, 3) - round(first, 3), 3)
        text = f"{100 * change:+.1f}".replace("-", "−") if change else "±0.0"
        cells.append(ScoreCell(percent(value), value, "" if change is None else text))
    return cells


def overall(metrics: Sequence[Metrics], which: str) -> list[list[ScoreCell]]:
    """Return the scores of a set: one list per run, one cell per kind of score."""
    columns = [score_cells(_values(metrics, which, "overall", score.key)) for score in SCORES]
    return [list(row) for row in zip(*columns, strict=True)]


def scored_sets(metrics: Iterable[Metrics]) -> list[str]:
    """Return the sets that at least one run has scores of."""
    return [which for which in SETS if any(which in one for one in metrics)]


def scores_section(runs: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """Return the scores of every set: overall, by class, by video, and the confusion."""
    metrics, classes = [run.metrics for run in runs], runs[0].classes
    sections = []
    for which in scored_sets(metrics):
        about = next(one[which] for one in metrics if which in one)
        sections.append(
            {
                "key": which,
                "title": SETS[which].title,
                "overall": overall(metrics, which),
                "classes": class_rows(metrics, classes, which),
                "videos": video_scores(metrics, classes, which, runs[0].data["videos"]),
                "confusion": confusion(metrics, classes, which),
                "about": about,
                "intervals": _values(metrics, which, "primary", "interval"),
            }
        )
    return sections


def class_rows(metrics: Sequence[Metrics], classes: Sequence[str], which: str) -> list[dict[str, Any]]:
    """Return IoU and false presence of each class that is scored."""
    rows = []
    for number, name in enumerate(classes):
        counts = [count for count in _values(metrics, which, "classes", name, "frames") if count is not None]
        if counts:
            rows.append(
                {
                    "name": name,
                    "number": number,
                    "frames": counts[0],
                    "iou": score_cells(_values(metrics, which, "classes", name, "iou")),
                    "false_presence": score_cells(_values(metrics, which, "classes", name, "false_presence")),
                }
            )
    return rows


def video_scores(
    metrics: Sequence[Metrics], classes: Sequence[str], which: str, records: Mapping[str, Any]
) -> dict[str, Any]:
    """Return mIoU, mIoU per frame and the IoU of each class for each video, with means over videos."""
    names = dict.fromkeys(name for one in metrics for name in one.get(which, {}).get("videos", {}))
    columns = {key: [_values(metrics, which, "videos", name, key) for name in names] for key in ("miou", "miou_frames")}
    ious = [[_values(metrics, which, "videos", name, "class_iou", one) for name in names] for one in classes]
    rows = []
    for place, name in enumerate(names):
        counts = _values(metrics, which, "videos", name, "frames")
        rows.append(
            {
                "name": name,
                "case": records.get(name, {}).get("case", ""),
                "frames": next(count for count in counts if count is not None),
                "scores": [score_cells(values[place]) for values in columns.values()],
                "classes": [of_class[place] for of_class in ious],
            }
        )
    return {
        "rows": rows,
        "spread": [_spreads(values) for values in columns.values()],
        "class_spread": [_spreads(of_class) for of_class in ious],
    }


def confusion(metrics: Sequence[Metrics], classes: Sequence[str], which: str) -> dict[str, Any]:
    """Return the share of each true class's pixels that each run predicts as each class.

    All runs have the same rows and columns; classes that occur nowhere are left out.
    """
    matrices = {n: np.array(one[which]["confusion"])[:-1] for n, one in enumerate(metrics) if which in one}
    names = [*classes, "none"]
    total = np.sum(list(matrices.values()), axis=0)
    rows = np.flatnonzero(total.sum(1)).tolist()
    columns = np.flatnonzero(total.sum(0) + np.append(total.sum(1), 0)).tolist()
    tables = []
    for number, matrix in matrices.items():
        shares = matrix / np.maximum(1, matrix.sum(1))[:, None]
        table = [(names[i], [(float(shares[i, j]), int(matrix[i, j]), i == j) for j in columns]) for i in rows]
        tables.append((number, table))
    return {"columns": [names[j] for j in columns], "tables": tables}


def scores_table(runs: Sequence[Path], metrics: Sequence[Metrics] | None = None) -> TerminalTable:
    """Make a terminal table of the runs' scores on each set, with the sets explained below.

    Args:
        runs: Run folders.
        metrics: Scores to show instead of those in the folders.

    >>> Console().print(scores_table([Path("runs/supervised"), Path("runs/pgvcl")]))  # doctest: +SKIP
    """
    read = read_runs(runs)
    metrics = metrics or [run.metrics for run in read]
    sets = scored_sets(metrics)
    groups = []
    for which in sets:
        rows = zip(read, overall(metrics, which), strict=True)
        groups.append(
            [
                ["" if place else SETS[which].name, run.title, *(cell.text for cell in cells[:TERMINAL_SCORES])]
                for place, (run, cells) in enumerate(rows)
            ]
        )
    titles = [score.title.replace(" ", "\n") for score in SCORES[:TERMINAL_SCORES]]
    table = Table.of_text(["scored on", "run", *titles], *groups, title="Scores (%)").to_terminal()
    notes = (note for which in sets for one in metrics for note in one.get(which, {}).get("notes", ()))
    table.caption, table.caption_justify = Text("\n".join([set_meanings(sets), *dict.fromkeys(notes)])), "left"
    return table


def _spreads(rows: Sequence[Sequence[float | None]]) -> list[str]:
    """Write mean and standard deviation of each run's scores over videos; a row per video."""
    known = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    deviations = [float(np.std(values, ddof=1)) if len(values) > 1 else None for values in known]
    return [
        f"{percent(float(np.mean(values)))} ±\u00a0{percent(deviation)}" if values else "–"
        for values, deviation in zip(known, deviations, strict=True)
    ]


def _values(metrics: Sequence[Metrics], *keys: str) -> list[Any]:
    """Return a nested value of each run; None where a key is missing."""
    values: list[Any] = list(metrics)
    for key in keys:
        values = [value.get(key) if isinstance(value, Mapping) else None for value in values]
    return values
