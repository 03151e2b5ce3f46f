"""Warning for scores of few frames or cases."""

from collections.abc import Mapping, Sequence
from typing import Any

from suture.core.text import listed, number
from suture.evaluation.titles import SETS

MIN_FRAMES = 100


def sample_size_warnings(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence if scores have few frames, or too few cases for an interval.

    Args:
        runs: Scores of each run, as in its `metrics.json`.
    """
    small = []
    for key, frame_set in SETS.items():
        scored = [metrics[key] for metrics in runs if key in metrics]
        frames = min((one["overall"]["frames"] for one in scored), default=0)
        if scored and (frames < MIN_FRAMES or not all(one["primary"]["interval"] for one in scored)):
            videos, cases = len(scored[0]["videos"]), len(scored[0]["cases"])
            of_cases = f" of {number(cases, 'case')}" if cases < videos else ""
            small.append(f"{frame_set.title} on {number(frames, 'frame')} of {number(videos, 'video')}{of_cases}")
    return [f"Scores rest on little: {listed(small)}; on other videos they may be quite different."] if small else []
