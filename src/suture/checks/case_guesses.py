"""Guesses for the draft of a `dataset.yaml`: cases from videos, splits from cases."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile

from suture.data.dataset import SPLITS, Split, is_split_word, splits_by_name
from suture.data.listing import natural
from suture.data.video_index import VideoEntry

MIN_CASES_FOR_VAL = 5
"""Minimum number of labelled cases for a validation split; with fewer, all are needed for training."""
_PART = re.compile(r"(.+?)[ _.-]*part[ _.-]*([0-9]+)", re.IGNORECASE)
_PIECE = re.compile(r"(.*[0-9].*?)(?:[ _.-]+([0-9]+)|(?<=[0-9])[ _.-]?[a-h])", re.IGNORECASE)
"""A name that holds a number, with another one or a letter behind it: case07_2, case07b, video01_00080."""


def guess_cases(videos: Sequence[VideoEntry], named: bool = False) -> dict[str, list[str]]:
    """Group videos into operations by folders and by names of pieces of one recording.

    When unsure, videos are joined: a case that is too large costs little, but one operation in train and test gives
    wrong scores.

    Args:
        videos: All videos of the dataset.
        named: The user has stated that a folder holds images of several videos, so the folder does not join them.

    Returns:
        Case → the ids of its videos.

    >>> from pathlib import Path
    >>> guess_cases([VideoEntry((name,), Path(), {}) for name in ("op1_1", "op1_2", "op2")])
    {'op1': ['op1_1', 'op1_2'], 'op2': ['op2']}
    """
    in_folder = Counter(video.folder for video in videos if video.file is None)
    apart = {video.id for video in videos if named and video.file is None and in_folder[video.folder] > 1}
    paths = _without_shared({video.id: video.parts[-1:] if video.id in apart else video.parts for video in videos})
    # seq_1 in a folder train and seq_1 in a folder test are two operations; videos in train1 may be of one operation.
    folders = {
        video: paths[video][0]
        for video in splits_of_names(videos)
        if len(paths[video]) > 2 or (len(paths[video]) == 2 and is_split_word(paths[video][0]))
    }
    paths = _without_shared({video: path[1:] if video in folders else path for video, path in paths.items()})
    divided = _divided_by_frames([video for video in videos if video.id in folders], paths)
    stems = _stems({path[0] for path in paths.values() if len(path) == 1})
    cases: dict[str, list[str]] = defaultdict(list)
    for video, path in paths.items():
        case = path[0] if len(path) > 1 else stems.get(path[0], path[0])
        cases[f"{folders[video]}_{case}" if video in folders and video not in divided else case].append(video)
    # A case must not have the name of another case's video.
    return {(case if len(of_case) > 1 else of_case[0]): of_case for case, of_case in cases.items()}


def guess_split(
    expected: Mapping[str, Collection[Split]], cases: Mapping[str, list[str]], labelled: Counter[str]
) -> dict[Split, list[str]]:
    """Assign cases to splits.

    Args:
        expected: Video → the splits that lists or names give it. A case with one of them gets it, others get none.
        cases: Case → its videos.
        labelled: Video → its labelled frames. Where nothing is expected, about 60, 20 and 20 % of the labelled cases
            are for train, val and test. Fewer than two labelled cases are not split.
    """
    split: dict[Split, list[str]] = {name: [] for name in SPLITS}
    for case, videos in cases.items():
        if len(splits := {split for video in videos for split in expected.get(video, ())}) == 1:
            split[splits.pop()].append(case)
    candidates = sorted((case for case, of_case in cases.items() if any(labelled[v] for v in of_case)), key=natural)
    count = len(candidates)
    if expected or count < 2:
        return split
    each = max(1, round(0.2 * count))
    validated = count >= MIN_CASES_FOR_VAL
    held_count = 2 * each if validated else each
    held = [candidates[(2 * i + 1) * count // (2 * held_count)] for i in range(held_count)]
    split["test"], split["val"] = (held[::2], held[1::2]) if validated else (held, [])
    split["train"] = [case for case in cases if case not in held]
    return split


def splits_of_names(videos: Sequence[VideoEntry]) -> dict[str, Split]:
    """The splits that the first folders or names give that are not the same for all videos."""
    return splits_by_name({v: path[0] for v, path in _without_shared({v.id: v.parts for v in videos}).items()})


def _stems(names: set[str]) -> dict[str, str]:
    """The stem of each name that looks like a piece of a recording, unless all names have one stem.

    Short numbers must count the pieces; numbers of three digits or more may be those of frames.
    """
    pieces: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        if match := _PART.fullmatch(name) or _PIECE.fullmatch(name):
            pieces[match[1]][name] = match[2] or "1"
    stems: dict[str, str] = {}
    for stem, numbers in pieces.items():
        count = len(numbers) + (stem in names)  # the first piece may have no number
        if count < len(names) and all(len(digits) > 2 or int(digits) <= count for digits in numbers.values()):
            stems |= dict.fromkeys([*numbers, stem], stem)
    return stems


def _divided_by_frames(videos: Sequence[VideoEntry], paths: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Videos of one name in several splits that share no frame: pieces of one video."""
    groups: dict[tuple[str, ...], list[VideoEntry]] = defaultdict(list)
    for video in videos:
        groups[paths[video.id]].append(video)
    frames = {path: Counter(stem for video in group for stem in video.images) for path, group in groups.items()}
    return {
        v.id for path, group in groups.items() if set(frames[path].values()) == {1} for v in group if len(group) > 1
    }


def _without_shared(paths: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Paths without the first folders that are the same for all: they tell no cases apart."""
    levels = zip(*(path[:-1] for path in paths.values()), strict=False)
    shared = len(list(takewhile(lambda level: len(set(level)) == 1, levels))) if len(paths) > 1 else 0
    return {video: path[shared:] for video, path in paths.items()}
