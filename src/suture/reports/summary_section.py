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
from suture.training.effort import differing, digest, scored_on

MAX_NAMED_RUNS = 4
"""Runs that the title names."""
NEW_SETS = ("test", "val")
"""Sets that runs on the same data share; completion depends on the labels."""


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
    sentences = sample_size_warnings([run.metrics for run in runs]) + terminal_cautions(runs)
    if sum(bool(run.metrics) for run in runs) > 1:
        sentences.append(
            "Every run is one training with one seed, so differences between runs may be chance. Compare methods with "
            "three or more seeds of each (suture compare)."
        )
    for run in runs:
        if since := videos_since(run.data, run.metrics):
            sentences.append(f"{run.title} is also scored on {listed(since)}: added to the splits after its training.")
        trained = {video["case"] for video in run.videos("train").values()}
        if cases := sorted(trained.intersection(run.metrics.get("test", {}).get("cases", ()))):
            sentences.append(
                f"{run.title}: trained and tested on videos of {', '.join(cases)}, "
                "so the scores do not show how it works on new patients."
            )
    return sentences


def terminal_cautions(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the cautions that the terminal prints too: unfinished runs, and runs that cannot be compared."""
    first = runs[0]
    waiting = [run.title for run in runs if not (run.is_trained and run.is_scored)]
    sentences = [f"Not finished: {listed(waiting)}. Unfinished parts are left out."] if waiting else []
    for run in runs[1:]:
        both = [which for which in NEW_SETS if which in first.metrics and which in run.metrics]
        with_effort = run.is_trained and first.is_trained
        if unequal := differing(_facts_to_compare(run, both, with_effort), _facts_to_compare(first, both, with_effort)):
            sentences.append(f"{run.title} is not comparable with {first.title}: {listed(unequal)}.")
    return sentences


def _facts_to_compare(run: ReportedRun, sets: Sequence[str], with_effort: bool) -> dict[str, str]:
    """Return facts that runs must share for their scores to be comparable."""
    files = {name: video["sha256"] for name, video in run.videos("train").items()}
    labelled = run.data["labelled"]
    return {
        "training videos": f"{len(files)} ({digest(files)})",
        "labelled frames": f"{len(labelled)} ({digest(labelled)})",
        **{f"{SETS[which].name} on": scored_on(run.metrics[which], run.classes) for which in sets},
        **(run.effort if with_effort else {}),
    }


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
    """Return the main facts of each run."""
    return [_facts(run) for run in runs]


def _facts(run: ReportedRun) -> dict[str, str]:
    config, environment, weights = run.config, run.environment, run.data["weights"]
    train = run.videos("train")
    height, width = config.data.height_width
    changed = " with changes" if (environment["commit"] or "").endswith("+") else ""
    start = (weights.get("hub") or f"a file, {weights['sha256'][:12]}") if weights else "random weights"
    return {
        "folder": run.name,
        "method": run.method_name,
        "stages": " → ".join(folder.name for _, folder in run.method_stages),
        "seed": str(run.seed),
        "labelled frames": f"{len(run.data['labelled'])} of {run.training_frames} ({run.labelled_share:.1%})",
        "training data": f"{len(train)} videos of {len({video['case'] for video in train.values()})} cases",
        "segmenter": f"{config.model.architecture}, {config.model.encoder}, {height} × {width} pixels",
        "started from": start,
        "device": f"{environment['device']}, precision {environment['precision']}",
        "code": f"Suture {environment['suture']}, commit {(environment['commit'] or 'unknown')[:10]}{changed}",
        "time in finished stages": duration(run.seconds) if run.stage_records else "not known",
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
