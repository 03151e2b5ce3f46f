"""When scores rest on little: one rule and one sentence, wherever people read scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from suture.evaluation.titles import SETS
from suture.words import listed, number

_FEW_FRAMES = 100


def few(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What scores rest on, in one sentence, where it is little: too few cases for an interval, or few frames.

    `runs` are the scores of each run, as in its `metrics.json`.
    """
    rests = []
    for which, frame_set in SETS.items():
        scored = next((metrics[which] for metrics in runs if which in metrics), None)
        if scored is None:
            continue
        frames, videos, cases = scored["overall"]["frames"], len(scored["videos"]), len(scored["cases"])
        if scored["primary"]["interval"] is not None and frames >= _FEW_FRAMES:
            continue
        of_cases = f" of {number(cases, 'case')}" if cases < videos else ""
        rests.append(f"{frame_set.title} on {number(frames, 'frame')} of {number(videos, 'video')}{of_cases}")
    return [f"Scores rest on little: {listed(rests)}; on other videos they may be quite different."] if rests else []
