"""Frames to label next: spread over the shots, or those of which a model is least confident."""

import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from suture.data.dataset import Dataset
from suture.data.labelling import Labelling, by_budget


def suggest_by_shots(dataset: Dataset, shots: Mapping[str, Sequence[int]], budget: int) -> Labelling:
    """Suggest frames without a model, evenly over the shots.

    Args:
        dataset: The videos.
        shots: Index of the first frame of each shot, by video.
        budget: Number of frames.
    """
    members = {}
    for video in dataset:
        usable, starts = video.usable, [*shots.get(video.id, ()), len(video)]
        places = [bisect_left(usable, start) for start in starts]
        members[video.id] = [usable[a:b] for a, b in itertools.pairwise(places)]
    labelled = Labelling({video.id: video.with_mask for video in dataset})
    return by_budget(members, budget, labelled)


def suggest_by_confidence(dataset: Dataset, confidence: Mapping[str, Mapping[int, float]], budget: int) -> Labelling:
    """Suggest the least confident frames, apart from each other and from what is labelled; never of test videos.

    Args:
        dataset: The videos.
        confidence: Confidence by video and frame.
        budget: Number of frames.
    """
    videos = [video for video in dataset if video.split != "test" and video.id in confidence]
    order = sorted((value, video.id, index) for video in videos for index, value in confidence[video.id].items())
    taken = {video.id: list(video.with_mask) for video in videos}
    gap = {video.id: max(1, len(video) // (2 * budget)) for video in videos}
    chosen: dict[str, list[int]] = {}
    for _, video, index in order:
        if sum(map(len, chosen.values())) == budget:
            break
        if index not in dataset[video].excluded and all(abs(index - one) >= gap[video] for one in taken[video]):
            taken[video].append(index)
            chosen.setdefault(video, []).append(index)
    return Labelling(chosen)
