"""When scores rest on little: one rule and one sentence, wherever people read scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from suture.core.text import listed, number
from suture.evaluation.titles import SETS

_FEW_FRAMES = 100


def few(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What scores rest on, in one sentence, where it is little: too few cases for an interval, or few frames.

    `runs` are the scores of each run, as in its `metrics.json`.
    """
    rests = []
    for which, frame_set in SETS.items():
        scored = [metrics[which] for metrics in runs if which in metrics]
        counts = sorted({one["overall"]["frames"] for one in scored})
        if not scored or (all(one["primary"]["interval"] for one in scored) and counts[0] >= _FEW_FRAMES):
            continue
        videos, cases = len(scored[0]["videos"]), len(scored[0]["cases"])
        frames = number(counts[-1], "frame") if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} frames"
        of_cases = f" of {number(cases, 'case')}" if cases < videos else ""
        rests.append(f"{frame_set.title} on {frames} of {number(videos, 'video')}{of_cases}")
    return [f"Scores rest on little: {listed(rests)}; on other videos they may be quite different."] if rests else []
