"""The stages of the runs: their curves, and what they cost."""

from typing import Any

from markupsafe import Markup

from suture.reports.charts import Series, line_chart
from suture.reports.context import Context

_CURVES = {
    "loss": "loss",
    "taught": "share of unlabelled pixels learnt from",
    "lr": "learning rate",
    "images_per_second": "images per second",
}
"""What a stage writes down at every few steps."""


def training_section(context: Context) -> dict[str, Any]:
    """The curves of every stage, and whether any stage says how much memory it took."""
    curves = [(key, title, _charts(context, key, title)) for key, title in _CURVES.items()]
    done = [stage.done for run in context.runs for stage in run.stages if stage.done]
    return {
        "curves": [one for one in curves if one[2]],
        "has_memory": any(one.get("peak_memory") for one in done),
    }


def _charts(context: Context, key: str, title: str) -> list[tuple[str, Markup]]:
    """A chart per stage, with the curve of every run that has it."""
    charts: dict[str, list[Series]] = {}
    for number, run in enumerate(context.runs):
        for stage in run.stages:
            if rows := [row for row in stage.curve if key in row]:
                series = Series(run.name, number, [row["step"] for row in rows], [row[key] for row in rows])
                charts.setdefault(stage.name, []).append(series)
    return [(name, line_chart(name, series, "step", title)) for name, series in charts.items()]
