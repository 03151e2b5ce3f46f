"""The top of the page: what was run, what came out, and what a reader has to know before comparing."""

import os
from collections.abc import Sequence
from typing import Any

from suture.core.schemas import taking_part, videos_since
from suture.core.text import listed
from suture.evaluation.protocols import COMPLETION
from suture.evaluation.sample_size import sample_size_warnings
from suture.evaluation.titles import SETS, TITLES
from suture.reports.context import Context
from suture.reports.run_facts import RunFacts
from suture.reports.scores_section import overall
from suture.training.budget import differing, scored_on


def findings(context: Context, scored: Sequence[str]) -> list[dict[str, Any]]:
    """The primary score of every run on every set."""
    found = []
    for which in scored:
        primary = next(run.metrics[which]["primary"]["score"] for run in context.runs if which in run.metrics)
        place = list(TITLES).index(primary)
        cells = [row[place] for row in overall(context.runs, which)]
        found.append({"title": SETS[which].title, "score": TITLES[primary], "cells": cells})
    return found


def cautions(runs: Sequence[RunFacts]) -> list[str]:
    """What speaks against taking the scores at their face value."""
    said = sample_size_warnings([run.metrics for run in runs])
    first = runs[0]
    if sum(bool(run.metrics) for run in runs) > 1:
        said.append(
            "Every run is one training with one seed: a difference between runs may be chance. To tell which method is "
            "better takes three seeds or more of each (suture compare)."
        )
    if waiting := unfinished(runs):
        said.append(waiting)
    said += scored_otherwise(runs)
    for run in runs:
        if run.finished and not run.metrics:
            said.append(f"{run.name} is not evaluated, or nothing it could be scored on has masks.")
        if _unlike_videos(run, first):
            said.append(f"{run.name} was tested on other videos than {first.name}.")
        if since := videos_since(run.data, run.metrics):
            said.append(f"{run.name} is also scored on {listed(since)}: put into the splits after its training.")
        of_first = first.data["videos"]
        names = [n for n, one in run.data["videos"].items() if of_first.get(n, one)["sha256"] != one["sha256"]]
        if names:
            said.append(f"The files of {', '.join(names)} are others in {run.name} than in {first.name}.")
        if run.data["labelled"] != first.data["labelled"]:
            said.append(f"{run.name} learnt from other labelled frames than {first.name}.")
        if run.finished and first.finished and (unequal := differing(run.effort, first.effort)):
            said.append(f"{run.name} was trained otherwise than {first.name}: {listed(unequal)}.")
    known: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        learnt = {video["case"] for video in run.videos("train").values()}
        tested = {*run.metrics.get("test", {}).get("cases", ()), *(one["case"] for one in run.videos("test").values())}
        if shared := sorted(tested & learnt):
            known.setdefault(tuple(shared), []).append(run.name)
    for cases, names in known.items():
        said.append(
            f"{', '.join(names)}: trained and tested on videos of {', '.join(cases)}, "
            "so the scores say nothing about new patients."
        )
    return said


def scored_otherwise(runs: Sequence[RunFacts]) -> list[str]:
    """Which runs are scored on other frames or by other masks than the first: as after masks were added since."""
    first, said = runs[0], []
    for run in runs[1:]:
        # Other labels leave other frames, and other videos have theirs: both are told already.
        known = {COMPLETION: run.data["labelled"] != first.data["labelled"], "test": _unlike_videos(run, first)}
        both = [which for which in first.metrics if which in run.metrics and not known.get(which)]
        ours, theirs = (
            {f"{SETS[which].name} on": scored_on(one.metrics[which], one.classes) for which in both}
            for one in (run, first)
        )
        if told := differing(ours, theirs):
            said.append(
                f"{run.name} is not scored on what {first.name} is: {listed(told)}. `suture evaluate RUN` scores a run "
                "anew, on the masks that are there now."
            )
    return said


def _unlike_videos(run: RunFacts, first: RunFacts) -> bool:
    return _tested(run, first) != _tested(first, run)


def _tested(run: RunFacts, beside: RunFacts) -> set[str]:
    """The videos that a run was tested on; where one of the two is not scored yet, those meant for it."""
    scored = "test" in run.metrics and "test" in beside.metrics
    return set(run.metrics["test"]["videos"] if scored else run.videos("test"))


def unfinished(runs: Sequence[RunFacts]) -> str:
    """Which runs are not finished; nothing where all are."""
    waiting = [run.name for run in runs if not run.finished]
    return f"Not finished: {listed(waiting)}. What is not done yet is left out." if waiting else ""


def unmeasured(runs: Sequence[RunFacts], scored: Sequence[str], has_footage: bool) -> list[str]:
    """Why a kind of score is missing."""
    said = []
    waiting = [run.name for run in runs if not run.finished]
    if waiting and len(scored) < len(SETS):
        return [f"{listed(waiting)} cannot be scored yet, as training is not finished."]
    if not any(which != COMPLETION for which in scored):
        if any(run.config.evaluation.splits for run in runs):
            kept = any(run.videos(split) for run in runs for split in ("test", "val"))
            why = "No new video has masks" if kept else "The split keeps no video for validation or test"
            below = "; what can be said without truth is below" if has_footage else ""
            said.append(f"{why}: how good the masks of new videos are was not measured{below}.")
        else:
            said.append("New videos were not scored: evaluation.splits names none.")
    elif "test" not in scored:
        said.append(
            "No test video was scored. What was chosen by looking at validation videos, such as settings, makes scores "
            "on them too good."
        )
    if COMPLETION not in scored:
        switched_off = not any(run.config.evaluation.completion for run in runs)
        why = "evaluation.completion is off" if switched_off else "no unlabelled frame of a labelled video has a mask"
        said.append(f"Completion was not measured: {why}.")
    return said


def title(runs: Sequence[RunFacts]) -> str:
    """What the page is about."""
    named = listed([run.name for run in runs]) if len(runs) < 5 else f"{len(runs)} runs"
    return f"{runs[0].data['dataset']}: {named}"


def facts_of(runs: Sequence[RunFacts]) -> list[dict[str, str]]:
    """Each run in a few lines; with its folder where the page has another name for it."""
    folders = [os.path.basename(os.path.abspath(run.run.folder)) for run in runs]  # one may be given as .
    renamed = any(folder not in run.name for folder, run in zip(folders, runs, strict=True))
    return [({"folder": folder} if renamed else {}) | _facts(run) for folder, run in zip(folders, runs, strict=True)]


def _facts(run: RunFacts) -> dict[str, str]:
    config, environment = run.config, run.environment
    train = run.videos("train")
    usable = sum(taking_part(video) for video in train.values())
    labelled = len(run.data["labelled"])
    weights = run.data["weights"]
    size = config.data.height_width
    # Of a finished run, the folder of a stage may have been removed since: it is large.
    taken: list[Any] = [
        stage.done["seconds"] if stage.done else None for stage in run.stages if stage.done or run.finished
    ]
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
        "time": "not known" if None in taken else seconds(sum(taken)) + " in finished stages" * (not run.finished),
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
