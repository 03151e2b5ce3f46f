"""Top of the page: the runs, their primary scores, and cautions about comparing them."""

from collections.abc import Sequence
from typing import Any

from suture.core.schemas import videos_since
from suture.core.text import listed
from suture.evaluation.protocols import COMPLETION
from suture.evaluation.sample_size import sample_size_warnings
from suture.evaluation.titles import SETS, TITLES
from suture.reports.reported_run import ReportedRun
from suture.reports.scores_section import overall
from suture.training.effort import differing, scored_on

MAX_NAMED_RUNS = 4
"""Runs that the title names."""


def primary_scores(runs: Sequence[ReportedRun], scored: Sequence[str]) -> list[dict[str, Any]]:
    """Return the primary score of every run on every set."""
    metrics = [run.metrics for run in runs]
    rows = []
    for which in scored:
        primary = next(one[which]["primary"]["score"] for one in metrics if which in one)
        cells = [row[list(TITLES).index(primary)] for row in overall(metrics, which)]
        rows.append({"title": SETS[which].title, "score": TITLES[primary], "cells": cells})
    return rows


def cautions(runs: Sequence[ReportedRun]) -> list[str]:
    """Return cautions about the reliability and comparability of the scores."""
    first = runs[0]
    sentences = sample_size_warnings([run.metrics for run in runs])
    if sum(bool(run.metrics) for run in runs) > 1:
        sentences.append(
            "Every run is one training with one seed, so differences between runs may be chance. Compare methods with "
            "three or more seeds of each (suture compare)."
        )
    sentences += terminal_cautions(runs)
    for run in runs:
        if run.is_trained and not run.metrics:
            sentences.append(f"{run.title} is not evaluated, or nothing it could be scored on has masks.")
        if _test_videos(run, first) != _test_videos(first, run):
            sentences.append(f"{run.title} was tested on other videos than {first.title}.")
        if since := videos_since(run.data, run.metrics):
            sentences.append(f"{run.title} is also scored on {listed(since)}: added to the splits after its training.")
        known = first.data["videos"]
        names = [name for name, one in run.data["videos"].items() if known.get(name, one)["sha256"] != one["sha256"]]
        if names:
            sentences.append(f"The files of {', '.join(names)} differ between {run.title} and {first.title}.")
        if run.data["labelled"] != first.data["labelled"]:
            sentences.append(f"{run.title} was trained on other labelled frames than {first.title}.")
        if run.is_trained and first.is_trained and (unequal := differing(run.effort, first.effort)):
            sentences.append(f"{run.title} was trained differently from {first.title}: {listed(unequal)}.")
        trained = {video["case"] for video in run.videos("train").values()}
        tested = {*run.metrics.get("test", {}).get("cases", ()), *(one["case"] for one in run.videos("test").values())}
        if cases := sorted(tested & trained):
            sentences.append(
                f"{run.title}: trained and tested on videos of {', '.join(cases)}, "
                "so the scores do not show how it works on new patients."
            )
    return sentences


def terminal_cautions(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the cautions that the terminal prints too: unfinished runs, and scores on other frames or masks."""
    first = runs[0]
    waiting = [run.title for run in runs if not run.is_trained]
    sentences = [f"Not finished: {listed(waiting)}. Unfinished parts are left out."] if waiting else []
    for run in runs[1:]:
        # These sets differ anyway; `cautions` reports it.
        expected = {
            COMPLETION: run.data["labelled"] != first.data["labelled"],
            "test": _test_videos(run, first) != _test_videos(first, run),
        }
        both = [which for which in first.metrics if which in run.metrics and not expected.get(which)]
        ours, theirs = (
            {f"{SETS[which].name} on": scored_on(one.metrics[which], one.classes) for which in both}
            for one in (run, first)
        )
        if unequal := differing(ours, theirs):
            sentences.append(
                f"{run.title} is not scored on the same masks as {first.title}: {listed(unequal)}. "
                "`suture evaluate RUN` scores a run again, on the current masks."
            )
    return sentences


def unmeasured(scored: Sequence[str]) -> list[str]:
    """Return which kinds of scores are missing."""
    sentences = []
    if not set(scored) - {COMPLETION}:
        sentences.append("No new video with masks was scored, so the quality on new videos is unknown.")
    elif "test" not in scored:
        sentences.append(
            "No test video was scored. Scores on validation videos are optimistic if settings were chosen on them."
        )
    if COMPLETION not in scored:
        sentences.append("Completion was not measured: it is off, or labelled videos have no other frame with a mask.")
    return sentences


def page_title(runs: Sequence[ReportedRun]) -> str:
    """Return the dataset and the runs."""
    return f"{runs[0].dataset_name}: {listed([run.title for run in runs], MAX_NAMED_RUNS)}"


def run_facts(runs: Sequence[ReportedRun]) -> list[dict[str, str]]:
    """Return the main facts of each run, with its folder where the page uses another title."""
    is_renamed = any(run.name not in run.title for run in runs)
    return [({"folder": run.name} if is_renamed else {}) | _facts(run) for run in runs]


def _facts(run: ReportedRun) -> dict[str, str]:
    config, environment, weights = run.config, run.environment, run.data["weights"]
    train = run.videos("train")
    height, width = config.data.height_width
    # The large folder of a stage may have been removed from a finished run.
    times: list[Any] = [
        folder.record["seconds"] if folder.record else None
        for _, folder in run.method_stages
        if folder.is_done or run.is_trained
    ]
    time = "not known" if None in times else duration(sum(times)) + " in finished stages" * (not run.is_trained)
    changed = " with changes" if (environment["commit"] or "").endswith("+") else ""
    start = (weights.get("hub") or f"a file, {weights['sha256'][:12]}") if weights else "random weights"
    return {
        "method": run.method_name,
        "stages": " → ".join(folder.name for _, folder in run.method_stages),
        "seed": str(run.seed),
        "labelled frames": f"{len(run.data['labelled'])} of {run.training_frames} ({run.labelled_share:.1%})",
        "training data": f"{len(train)} videos of {len({video['case'] for video in train.values()})} cases",
        "segmenter": f"{config.model.architecture}, {config.model.encoder}, {height} × {width} pixels",
        "started from": start,
        "device": f"{environment['device']}, precision {environment['precision']}",
        "code": f"Suture {environment['suture']}, commit {(environment['commit'] or 'unknown')[:10]}{changed}",
        "time": time,
    }


def duration(seconds: float) -> str:
    """Write a duration.

    >>> duration(7.25), duration(125), duration(7320)
    ('7.2 s', '2 min 5 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _test_videos(run: ReportedRun, other: ReportedRun) -> set[str]:
    """Return the videos that a run was tested on; if one of the two has no test scores, those of its split."""
    is_scored = "test" in run.metrics and "test" in other.metrics
    return set(run.metrics["test"]["videos"] if is_scored else run.videos("test"))
