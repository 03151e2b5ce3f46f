"""Training of the runs: curves and cost of their stages."""

from typing import Any

from markupsafe import Markup

from suture.reports.charts import Series, line_chart, run_label
from suture.reports.report_context import ReportContext
from suture.reports.summary_section import duration
from suture.training.effort import images_of_a_step
from suture.training.run_folder import RunStage
from suture.web.table import Table

CURVES = {
    "loss": "loss",
    "taught": "share of unlabelled pixels learnt from",
    "lr": "learning rate",
    "images_per_second": "images per second",
}
"""Titles of the columns of `metrics.csv` that are drawn."""
COLUMNS = ("run", "stage", "steps", "images per step", "last loss", "time", "images per second", "peak GPU memory")


def training_section(context: ReportContext) -> dict[str, Any]:
    """Return the curves of every stage, and a table of what the stages cost."""
    curves = [(key, title, _charts(context, key, title)) for key, title in CURVES.items()]
    groups = [
        [
            _stage_row("" if place else run_label(run.title, n), stage)
            for place, (_, stage) in enumerate(run.method_stages)
        ]
        for n, run in enumerate(context.runs)
    ]
    return {
        "curves": [one for one in curves if one[2]],
        "table": Table.of_text(COLUMNS, *groups),
        "has_memory": any(run.peak_memory for run in context.runs),
    }


def _stage_row(label: str, stage: RunStage) -> list[str]:
    record, curve = stage.record, stage.curve
    if record is None:
        progress = f"at step {curve[-1]['step']:.0f}, not done yet" if curve else "not done yet"
        return [label, stage.name, progress, *[""] * (len(COLUMNS) - 3)]
    memory, best = record.get("peak_memory"), record.get("best")
    images = images_of_a_step(record) if "steps" in record else 0
    total = record["steps"] * images if images else record["frames"]
    return [
        *(label, stage.name),
        f"{record.get('steps', '–')}" + (f" (best at {best['step']})" if best else ""),
        str(images or "–"),
        f"{record['loss']:.3f}" if "loss" in record else "–",
        duration(record["seconds"]),
        f"{total / max(record['seconds'], 1e-9):.1f}",
        f"{memory / 2**30:.2f} GiB" if memory else "–",
    ]


def _charts(context: ReportContext, key: str, title: str) -> list[tuple[str, Markup]]:
    """Draw one chart per stage, with the curve of every run that has it."""
    charts: dict[str, list[Series]] = {}
    for number, run in enumerate(context.runs):
        for stage in run.stages:
            if rows := [row for row in stage.curve if key in row]:
                series = Series(run.title, number, [row["step"] for row in rows], [row[key] for row in rows])
                charts.setdefault(stage.name, []).append(series)
    return [(name, line_chart(name, series, "step", title)) for name, series in charts.items()]
