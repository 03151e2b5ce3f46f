"""The labelling: the frames of the training videos that are labelled."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import Field, model_validator

from suture.core.errors import UserError
from suture.core.io import read_text
from suture.core.settings import Settings
from suture.core.text import NAMED, listed, number, short
from suture.data.dataset import Dataset

T = TypeVar("T")
_FRAME_NAME = re.compile(r"(?P<video>.+)__frame_(?P<index>[0-9]{1,9})(\.[A-Za-z]+)?")
_FIRST = 1e9
"""Priority of a shot without a frame: above every other shot."""
_VIDEO_AND_INDEX = re.compile(r"(?P<video>.*\S)\s+(?P<index>[0-9]{1,9})")


def frame_name(video: str, index: int) -> str:
    """The name of an extracted frame, and of its mask, without suffix: `VIDEO__frame_000120`."""
    return f"{video}__frame_{index:06d}"


def video_of(name: str) -> str:
    """The video of an extracted frame by its name, or an empty string.

    >>> video_of("case01__frame_000120.png"), video_of("polyp_7.png")
    ('case01', '')
    """
    match = _FRAME_NAME.fullmatch(name)
    return match["video"] if match else ""


@dataclass(frozen=True)
class Labelling:
    """The labelled frames of each video, as rising indices.

    >>> labelling = Labelling({"case01": (40, 0, 20)})
    >>> labelling["case01"], labelling["case02"], labelling.count
    ((0, 20, 40), (), 3)
    """

    frames: Mapping[str, Sequence[int]]

    def __post_init__(self) -> None:
        tidy = {video: tuple(sorted(set(indices))) for video, indices in sorted(self.frames.items()) if indices}
        object.__setattr__(self, "frames", tidy)

    def __getitem__(self, video: str) -> tuple[int, ...]:
        return tuple(self.frames.get(video, ()))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Video and index of every labelled frame."""
        return ((video, index) for video, indices in self.frames.items() for index in indices)

    def __and__(self, other: "Labelling") -> "Labelling":
        """The frames that are in both."""
        return Labelling({video: tuple({*indices} & {*other[video]}) for video, indices in self.frames.items()})

    @property
    def count(self) -> int:
        """The number of labelled frames."""
        return sum(map(len, self.frames.values()))

    def ratio(self, dataset: Dataset) -> float:
        """The labelled share of the training videos' usable frames."""
        return self.count / max(1, sum(len(video.usable) for video in dataset.split("train")))

    def to_text(self) -> str:
        """One `VIDEO INDEX` per line."""
        return "".join(f"{video} {index}\n" for video, index in self)


def read_lines(text: str, where: str) -> Iterator[tuple[str, str, int]]:
    """Yield the place (for messages), video and index of each line of a list.

    Lines are `VIDEO INDEX` or names as of `frame_name`, with folder and suffix or without; `#` begins a comment.

    >>> [*read_lines("case01 20  # blurred\\nmasks/case01__frame_000120.png", "list.txt")]
    [('list.txt, line 1', 'case01', 20), ('list.txt, line 2', 'case01', 120)]
    """
    for at, line in enumerate(text.splitlines(), 1):
        # A video's name may hold a '#': a comment begins the line or follows a space.
        line = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        match = _FRAME_NAME.fullmatch(Path(line).name) or _VIDEO_AND_INDEX.fullmatch(line)
        if match:
            yield f"{where}, line {at}", match["video"], int(match["index"])
        elif line:
            raise UserError(
                f"{where}, line {at}: found {short(line)}, expected VIDEO INDEX or VIDEO__frame_000120.png."
            )


def equidistant(lengths: Mapping[str, int], every: int) -> Labelling:
    """Choose every `every`-th frame of each video, from the first on.

    >>> equidistant({"seq_1": 149}, every=20).count
    8
    """
    return Labelling({video: range(0, length, every) for video, length in lengths.items()})


def interval(ratio: float) -> int:
    """The interval whose share of labelled frames is nearest to the ratio.

    >>> interval(0.1), interval(0.7)  # 1 / 0.7 is nearer to 1, which would be every frame
    (10, 2)
    """
    if not 0 < ratio <= 1:
        raise UserError(f"The labelled ratio is {ratio}, expected more than 0 and at most 1.")
    below = int(1 / ratio)
    return min((below, below + 1), key=lambda every: abs(1 / every - ratio))


def by_ratio(frames: Mapping[str, Sequence[int]], ratio: float) -> Labelling:
    """Choose about `ratio` of these frames of each video, at equal distances from the first on.

    >>> by_ratio({"thinned": range(0, 1000, 25)}, 0.1)["thinned"]
    (0, 250, 500, 750)
    """
    return Labelling({video: indices[:: interval(ratio)] for video, indices in frames.items()})


def by_budget(
    shots: Mapping[str, Sequence[Sequence[int]]], budget: int, labelled: Labelling | None = None
) -> Labelling:
    """Choose `budget` frames, evenly over the shots (usable indices) of each video.

    Every video gets a frame before any shot gets its own, every shot gets one before any gets two, and the rest goes
    in proportion to their lengths. Frames that are labelled already count as chosen, and are not given again. A budget
    above the number of frames chooses all of them.

    >>> shots = {"a": [range(0, 90), range(90, 100)], "b": [range(50)]}
    >>> first = by_budget(shots, budget=3)
    >>> first.to_text().split()
    ['a', '45', 'a', '95', 'b', '25']
    >>> by_budget(shots, budget=2, labelled=first).to_text().split()
    ['a', '22', 'a', '68']
    """
    candidates = [(video, shot) for video, of_video in shots.items() for shot in of_video if len(shot)]
    known = [set(labelled[video]) & set(shot) if labelled else set[int]() for video, shot in candidates]
    places = {video: place for place, video in enumerate(shots)}
    video_of = np.array([places[video] for video, _ in candidates], int)
    lengths, shares = np.array([len(shot) for _, shot in candidates]), np.array([len(frames) for frames in known])
    reached = np.isin(np.arange(len(shots)), video_of[shares > 0])
    for _ in range(min(budget, int((lengths - shares).sum()))):
        # Sainte-Laguë: the shot with the fewest frames for its length gets the next one.
        claims = lengths / (2 * shares + 1) + _FIRST * (shares == 0) + _FIRST * ((shares == 0) & ~reached[video_of])
        best = int(np.where(shares < lengths, claims, 0).argmax())
        shares[best] += 1
        reached[video_of[best]] = True
    chosen: dict[str, list[int]] = {}
    for (video, shot), of_shot, share in zip(candidates, known, shares.tolist(), strict=True):
        spread = _between(shot, of_shot, share) if of_shot else _evenly(shot, share)
        chosen.setdefault(video, []).extend(spread)
    return Labelling(chosen)


def _evenly(shot: Sequence[T], share: int) -> Iterator[T]:
    return (shot[(2 * k + 1) * len(shot) // (2 * share)] for k in range(share))


def _between(shot: Sequence[int], known: set[int], share: int) -> set[int]:
    """Frames that raise a shot's share, each in the middle of the longest stretch without any."""
    chosen = set(known)
    while len(chosen) < share:
        stretches = [list(stretch) for is_in, stretch in groupby(shot, chosen.__contains__) if not is_in]
        longest = max(stretches, key=len)
        chosen.add(longest[len(longest) // 2])
    return chosen - known


def from_list(path: Path, dataset: Dataset) -> Labelling:
    """Read the frames that a text file lists; a frame that the dataset does not have is an error.

    The end of a video's name is enough, as `suture predict` calls a video by the end of its path.
    """
    text = read_text(path, "one VIDEO INDEX per line")
    frames: dict[str, list[int]] = {}
    for where, name, index in read_lines(text, str(path)):
        named = [video for video in dataset if video.id == name]
        fitting = named or [video for video in dataset if video.id.endswith(f"_{name}")]
        if len(fitting) != 1:
            ids = listed([video.id for video in fitting or dataset], NAMED)
            raise UserError(f"{where}: the video {short(name)} fits {len(fitting)} videos, expected one of {ids}.")
        (video,) = fitting
        if index >= len(video):
            raise UserError(f"{where}: found frame {index} of video {video.id}, whose last frame is {len(video) - 1}.")
        frames.setdefault(video.id, []).append(index)
    return Labelling(frames)


def spread(videos: Sequence[str], count: int) -> list[str]:
    """Choose videos at equal distances, each in the middle of its share of the list.

    >>> spread(["a", "b", "c", "d", "e", "f"], 2)
    ['b', 'e']
    """
    if count > len(videos):
        raise UserError(f"data.labelling.videos is {count}, but there are {len(videos)} training videos with masks.")
    return list(_evenly(videos, count))


def all_masks(dataset: Dataset) -> Labelling:
    """Choose every frame of the training videos that has a mask and is not excluded."""
    return Labelling({video.id: video.with_mask for video in dataset.split("train")})


class LabellingSettings(Settings):
    """Settings of the labelled frames of a run; without any, all that have a mask."""

    every: int | None = Field(None, ge=1, description="every n-th frame of each training video, from the first on")
    """Label every n-th frame of each training video, counted among all frames."""
    ratio: float | None = Field(None, gt=0, le=1, description="about this share of the frames that take part")
    """Label about this share of the frames, at equal distances."""
    videos: int | None = Field(None, ge=1)
    """Label this number of training videos only, spread over their list: by `every` or `ratio`, else one frame each."""
    list: Path | None = Field(None, description="a text file with one VIDEO INDEX per line")
    """Text file of labelled frames: one `VIDEO INDEX` or `VIDEO__frame_000120.png` per line."""

    @model_validator(mode="after")
    def _at_most_one(self) -> "LabellingSettings":
        given = [name for name, value in self if value is not None]
        if len(given) > 1 and given not in (["every", "videos"], ["ratio", "videos"]):
            raise ValueError(f"{' and '.join(given)} are given, expected one of every, ratio, list and videos")
        return self


def choose(dataset: Dataset, settings: LabellingSettings) -> Labelling:
    """Choose the labelled frames of a run: usable frames of training videos that have a mask.

    Raises:
        UserError: There is none, or the settings choose none.
    """
    training = dataset.split("train")
    if not training:
        raise UserError(f"{dataset.root} has no training videos: put some cases into train, under split.")
    available = all_masks(dataset)
    if not available.count:
        raise UserError(f"{dataset.root} has no mask of a training video's frame: nothing can be learnt from it.")
    if settings.videos is not None:
        chosen = spread([video.id for video in training if available[video.id]], settings.videos)
        training = [dataset[video] for video in chosen]
    if settings.every is not None:
        wanted = equidistant({video.id: len(video) for video in training}, settings.every)
    elif settings.ratio is not None:
        wanted = by_ratio({video.id: video.taken for video in training}, settings.ratio)
    elif settings.list is not None:
        wanted = from_list(settings.list, dataset)
    elif settings.videos is not None:
        wanted = Labelling({video.id: [*_evenly(available[video.id], 1)] for video in training})
    else:
        return available
    labelled = wanted & available
    if not labelled.count:
        given = ", ".join(f"{name}={value}" for name, value in settings if value is not None)
        frames = number(available.count, "training frame")
        raise UserError(f"data.labelling ({given}) chooses none of the {frames} with a mask: choose others.")
    return labelled
