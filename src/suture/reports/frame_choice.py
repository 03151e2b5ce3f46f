"""Choice of the frames that a report shows: worst and best, evenly spread, far apart."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from suture.evaluation.scoring import Frames

FrameKey = tuple[str, int]
"""Video id and index of a frame."""
WORST, MEDIAN, BEST, DIFFER, EVENLY = "worst", "median", "best", "runs differ", "evenly"
NEXT, DISAGREE = "label next", "label differs"
"""Reasons to show a frame; `evenly` frames are chosen without regard to scores."""
GROUPS = (WORST, MEDIAN, BEST, DIFFER, NEXT, DISAGREE, EVENLY)
"""The reasons in the order of the page."""
PARTS_OF_VIDEO = 5
"""Frames of one group lie at least this part (a fifth) of their video apart."""


def evenly(count: int, most: int) -> list[int]:
    """Choose at most `most` of the places 0 … count − 1, evenly.

    >>> evenly(10, 4)
    [0, 2, 5, 7]
    """
    shown = min(count, most)
    return [i * count // shown for i in range(shown)]


def sample(frames: Frames, most: int) -> dict[str, list[int]]:
    """Choose at most `most` frames, evenly over all videos.

    >>> sample({"a": range(6), "b": range(4)}, 5)
    {'a': [0, 2, 4], 'b': [0, 2]}
    """
    keys = [(video, index) for video, indices in frames.items() for index in indices]
    return by_video(keys[i] for i in evenly(len(keys), most))


def by_video(keys: Iterable[FrameKey]) -> dict[str, list[int]]:
    """Group frames by video, in their order.

    >>> by_video([("a", 1), ("b", 0), ("a", 4)])
    {'a': [1, 4], 'b': [0]}
    """
    frames: dict[str, list[int]] = {}
    for video, index in keys:
        frames.setdefault(video, []).append(index)
    return frames


def far_apart(order: Iterable[FrameKey], distance: Mapping[str, int], count: int) -> list[FrameKey]:
    """Choose the first frames of an order that lie at least a video's `distance` from those before.

    >>> far_apart([("a", 4), ("a", 5), ("b", 5), ("a", 0)], {"a": 4, "b": 4}, 3)
    [('a', 4), ('b', 5), ('a', 0)]
    """
    chosen: list[FrameKey] = []
    for name, index in order:
        if len(chosen) < count and all(other != name or abs(index - at) >= distance[name] for other, at in chosen):
            chosen.append((name, index))
    return chosen


def pick(scores: Mapping[FrameKey, Sequence[float]], each: int = 3, spread: int = 0) -> dict[FrameKey, list[str]]:
    """Choose the worst, median and best frames, those on which runs differ most, and some evenly.

    Frames of one group lie far apart in their video, as neighbours look almost the same.

    Args:
        scores: Scores of each frame, one per run.
        each: Frames in each group.
        spread: Frames that are chosen evenly.

    Returns:
        The reasons for which each frame was chosen.

    >>> pick({("a", i): [i / 10] for i in range(10)}, each=1, spread=1)
    {('a', 0): ['worst', 'evenly'], ('a', 5): ['median'], ('a', 9): ['best']}
    """
    means = {key: float(np.mean(values)) for key, values in scores.items() if not np.isnan(values).any()}
    order = sorted(means, key=lambda key: (means[key], key))
    in_time = sorted(order)
    if len(order) < 3:
        return {key: [EVENLY] for key in in_time}
    third = len(order) // 3
    rank = {key: place for place, key in enumerate(order)}
    middle = sorted(order[third : len(order) - third], key=lambda key: abs(2 * rank[key] - len(order)))
    differ = {key: max(scores[key]) - min(scores[key]) for key in order}
    differing = sorted((key for key in order if differ[key] > 0), key=lambda key: (-differ[key], key))
    extent = {video: indices[-1] - indices[0] for video, indices in by_video(in_time).items()}

    def some(candidates: Sequence[FrameKey]) -> list[FrameKey]:
        distance = {video: length // PARTS_OF_VIDEO + 1 for video, length in extent.items()}
        while len(chosen := far_apart(candidates, distance, each)) < min(each, len(candidates)):
            distance = {video: least // 2 for video, least in distance.items()}
        return chosen

    groups = {
        WORST: some(order[:third]),
        MEDIAN: sorted(some(middle), key=rank.__getitem__),
        BEST: some(order[::-1][:third])[::-1],
        DIFFER: some(differing),
        EVENLY: [in_time[i] for i in evenly(len(in_time), spread)],
    }
    chosen: dict[FrameKey, list[str]] = {}
    for group, keys in groups.items():
        for key in keys:
            chosen.setdefault(key, []).append(group)
    return chosen
