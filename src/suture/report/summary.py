"""The top of the page: what was run, what came out, and what a reader has to know before comparing."""

from collections.abc import Sequence
from typing import Any

from suture.report.context import Context
from suture.report.facts import RunFacts
from suture.report.scores import COLUMNS, SETS, overall


def findings(context: Context, scored: Sequence[str]) -> list[dict[str, Any]]:
    """The primary score of every run on every set."""
    titles = {column.key: column.title for column in COLUMNS}
    found = []
    for which in scored:
        primary = next(run.metrics[which]["primary"]["score"] for run in context.runs if which in run.metrics)
        place = list(titles).index(primary)
        cells = [row[place] for row in overall(context.runs, which)]
        found.append({"title": SETS[which], "score": titles[primary], "cells": cells})
    return found


def cautions(runs: Sequence[RunFacts]) -> list[str]:
    """What speaks against taking the scores at their face value."""
    said = []
    first = runs[0]
    for run in runs:
        if not run.finished:
            said.append(f"{run.name} is not finished: what it has not done yet is left out.")
        elif not run.metrics:
            said.append(f"{run.name} is not evaluated, or nothing it could be scored on has masks.")
        known = {video["case"] for video in run.videos("train").values()}
        if shared := sorted({video["case"] for video in run.videos("test").values()} & known):
            said.append(
                f"{run.name} was trained and tested on videos of {', '.join(shared)}: "
                "its scores say nothing about new patients."
            )
        if run.videos("test").keys() != first.videos("test").keys():
            said.append(f"{run.name} was tested on other videos than {first.name}.")
        if run.data["labelled"] != first.data["labelled"]:
            said.append(f"{run.name} learnt from other labelled frames than {first.name}.")
    return said


def facts_of(run: RunFacts) -> dict[str, str]:
    """A run in a few lines."""
    config, environment = run.config, run.environment
    train = run.videos("train")
    usable = sum(video["frames"] - len(video["excluded"]) for video in train.values())
    labelled = len(run.data["labelled"])
    weights = run.data["weights"]
    size = config.data.height_width
    changed = " with changes" if (environment["commit"] or "").endswith("+") else ""
    return {
        "method": config.method["name"],
        "stages": " → ".join(stage.name for stage in run.stages),
        "seed": str(config.seed),
        "labelled frames": f"{labelled} of {usable} ({labelled / max(1, usable):.1%})",
        "training data": f"{len(train)} videos of {len({video['case'] for video in train.values()})} cases",
        "segmenter": f"{config.model.architecture}, {config.model.encoder}, {size[0]} × {size[1]} pixels",
        "started from": "random weights"
        if weights is None
        else weights.get("hub") or f"a file, {weights['sha256'][:12]}",
        "device": f"{environment['device']}, precision {environment['precision']}",
        "code": f"Suture {environment['suture']}, commit {(environment['commit'] or 'unknown')[:10]}{changed}",
        "time": seconds(sum(stage.done["seconds"] for stage in run.stages if stage.done)),
    }


def seconds(duration: float) -> str:
    """A duration for people.

    >>> seconds(7.25), seconds(125), seconds(7320)
    ('7.2 s', '2 min 5 s', '2 h 2 min')
    """
    if duration < 60:
        return f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
