"""Training frames, numbered and with their labels, and random draws as pure functions of a key."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Dataset, Video
from suture.data.labelling import Labelling
from suture.data.sampling.augment import Patches, ViewDraw, collate, outline
from suture.data.view import View


def generator(*key: int | str) -> np.random.Generator:
    """Create a random generator that is a function of its key, so that no state has to be saved.

    >>> generator(0, "pretrain", 17).random() == generator(0, "pretrain", 17).random()
    True
    """
    numbers = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
    return np.random.default_rng([len(numbers), *numbers])  # numpy ignores zeros at the end


class Epochs:
    """Endless passes over frames, each in a new random order, indexed by sample number."""

    def __init__(self, frames: Sequence[int] | np.ndarray, *key: int | str) -> None:
        self.frames = np.asarray(frames)
        self.key = key
        self._order: tuple[int, np.ndarray] = (-1, self.frames)

    def __getitem__(self, number: int) -> int:
        epoch, place = divmod(number, len(self.frames))
        if self._order[0] != epoch:
            self._order = (epoch, generator(*self.key, "order", epoch).permutation(self.frames))
        return int(self._order[1][place])


class PixelSource(Protocol):
    """Source of stored pixels: the frame store."""

    def frame(self, video: str, index: int) -> np.ndarray: ...

    def labels(self, video: str, index: int) -> np.ndarray: ...

    def inside(self, video: str) -> np.ndarray: ...


class FrameIndex:
    """Video and index of every usable frame, by its number: two integers for each frame."""

    def __init__(self, videos: Sequence[Video]) -> None:
        self.videos = videos
        self.firsts = np.cumsum([0, *(len(video.usable) for video in videos)])
        """Number of each video's first frame, and of the one after the last."""
        self.video_of = np.repeat(np.arange(len(videos), dtype=np.int32), np.diff(self.firsts))
        self.indices = np.concatenate([np.array(video.usable, np.int32) for video in videos])

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, number: int) -> tuple[Video, int]:
        return self.videos[self.video_of[number]], int(self.indices[number])

    def marked(self, chosen: Mapping[str, Sequence[int]]) -> np.ndarray:
        """Mark the frames that are among the chosen indices of their videos, bool."""
        return np.concatenate([np.isin(video.usable, chosen.get(video.id, ())) for video in self.videos])


class TrainingFrames:
    """Every usable frame of the training videos, numbered 0…n−1.

    Args:
        dataset: Its videos of the split `train`.
        labelling: The labelled frames.
        pixels: The frame store; None where only numbers are needed.
    """

    def __init__(self, dataset: Dataset, labelling: Labelling, pixels: PixelSource | None) -> None:
        self.videos: list[Video] = [video for video in dataset.split("train") if video.usable]
        self.classes = dataset.classes
        self._pixels = pixels
        self.places = FrameIndex(self.videos)
        self.is_labelled = self.places.marked(labelling.frames)
        self.labelled = np.flatnonzero(self.is_labelled)
        self.unlabelled = np.flatnonzero(~self.is_labelled)
        self.pseudo: Mapping[int, np.ndarray] = {}
        """Pseudo labels by frame number, at any resolution of the same scene."""
        self.confidence: Mapping[int, np.ndarray] = {}
        """Confidence of the pseudo labels, 0…255; frames without an entry count as certain."""
        if not len(self.labelled):
            raise UserError(f"{dataset.root}: no training frame is labelled: label some, or change data.labelling.")

    def __len__(self) -> int:
        return len(self.places)

    @property
    def pixels(self) -> PixelSource:
        assert self._pixels is not None
        return self._pixels

    @property
    def cases(self) -> np.ndarray:
        """Number of each frame's case."""
        names = {case: n for n, case in enumerate(dict.fromkeys(video.case for video in self.videos))}
        return np.array([names[video.case] for video in self.videos])[self.places.video_of]

    def image(self, number: int) -> np.ndarray:
        """Return the stored frame: the scene in the view, H W 3."""
        video, index = self.places[number]
        return self.pixels.frame(video.id, index)

    def labels(self, number: int) -> np.ndarray | None:
        """Return the true labels of a labelled frame, else its pseudo labels, else None."""
        video, index = self.places[number]
        if self.is_labelled[number]:
            return self.pixels.labels(video.id, index)
        return self.pseudo.get(number)

    def shows(self, number: int) -> list[int]:
        """Return the classes in the labels of a frame."""
        labels = self.labels(number)
        assert labels is not None
        return _classes_in(labels, len(self.classes))

    def in_view(self, number: int) -> np.ndarray:
        """Return 0 for pixels in the view and `IGNORE` for others, uint8; a single 0 where all are in it."""
        return self._in_view[self.places[number][0].id]

    @cached_property
    def _in_view(self) -> dict[str, np.ndarray]:
        inside = {video.id: self.pixels.inside(video.id) for video in self.videos}
        everything = np.zeros((1, 1), np.uint8)
        return {v: everything if i.all() else np.where(i, 0, IGNORE).astype(np.uint8) for v, i in inside.items()}

    def collate(self, numbers: Iterable[int], draws: Sequence[ViewDraw], confidence: bool = False) -> Patches:
        """Cut the drawn boxes out of the frames and their labels, and out of the confidence maps.

        Labels of mirrored samples have the classes of the mirror image.
        """
        numbers, draws = list(numbers), self.allowed(draws)
        sure = [self.confidence.get(n) for n in numbers] if confidence else None
        labels = [self.labels(n) for n in numbers]
        if self.classes.mirror:
            ids = self.classes.mirror_ids
            pairs = zip(labels, draws, strict=True)
            labels = [ids[one] if draw.flip and one is not None else one for one, draw in pairs]
        return collate(draws, [self.image(n) for n in numbers], labels, sure)

    def allowed(self, draws: Sequence[ViewDraw]) -> Sequence[ViewDraw]:
        """Return the draws, without flips where frames must not be mirrored."""
        return draws if self.classes.mirror is not None else [draw._replace(flip=False) for draw in draws]


class UnlabelledFrames:
    """Training frames without their labels: a pixel is only in the view or outside."""

    def __init__(self, frames: TrainingFrames) -> None:
        self.frames = frames
        frames.in_view(0)  # computed here, and not again in each of the loader's workers

    def collate(self, numbers: Sequence[int], draws: Sequence[ViewDraw]) -> Patches:
        """Cut the drawn boxes out of frames; their labels are 0 in the view and `IGNORE` outside."""
        images, in_view = [self.frames.image(n) for n in numbers], [self.frames.in_view(n) for n in numbers]
        return collate(self.frames.allowed(draws), images, in_view)

    def outline(self, number: int, draw: ViewDraw) -> np.ndarray:
        """Box and slant of a draw in pixels of its frame, in which distances are true."""
        return np.concatenate(outline(draw, self.frames.image(number).shape))


def take_fold(dataset: Dataset, fold: tuple[int, int] | None) -> Dataset:
    """Put the cases of a fold into the test split and all others into training; None keeps the splits.

    Args:
        dataset: The dataset.
        fold: Number of the fold, from 1 on, and number of all folds. Fold i has every n-th case from the i-th on.
    """
    if fold is None:
        return dataset
    (number, folds), cases = fold, sorted(dataset.cases)
    if not 1 <= number <= folds or not 2 <= folds <= len(cases):
        raise UserError(f"data.fold is {number}, {folds}: expected a fold and 2 to {len(cases)} folds of the cases.")
    tested = cases[number - 1 :: folds]
    videos = [replace(video, split="test" if video.case in tested else "train") for video in dataset.videos]
    return replace(dataset, videos=videos)


def carve_validation(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """Move training cases, or single training videos, to the validation split."""
    if not names:
        return dataset
    train = dataset.split("train")
    unknown = sorted(set(names) - {video.id for video in train} - {video.case for video in train})
    held = {video.id for video in train if _is_named(video, names)}
    if unknown or len(held) == len(train):
        why = f"names {unknown[0]!r}, which is no training case or video" if unknown else "takes all training videos"
        raise UserError(f"data.validation {why} of {dataset.root}: name some of its training cases.")
    videos = [replace(video, split="val") if video.id in held else video for video in dataset.videos]
    carved = replace(dataset, videos=videos)
    carved.require_whole_cases()
    return carved


def add_unlabelled(dataset: Dataset, further: Sequence[Video], seen: Sequence[str]) -> tuple[Dataset, frozenset[str]]:
    """Add unlabelled videos to the training split: those without split and mask, further ones, and whole splits.

    Args:
        dataset: Its labelled frames are chosen already.
        further: Videos from elsewhere; they get the view setting of the training videos.
        seen: Splits that are trained on without their labels.

    Returns:
        The dataset, and the ids of the videos of the splits in `seen`.
    """
    moved = frozenset(video.id for video in dataset if video.split in seen)
    joined = moved | {video.id for video in dataset if video.split is None and not video.masks}
    videos = [replace(video, split="train") if video.id in joined else video for video in dataset]
    shown = {video.view_setting for video in dataset.split("train")}
    for video in further:
        if video.id in {one.id for one in videos}:
            raise UserError(f"data.unlabelled: {dataset.root} has a video {video.id} too: rename one of them.")
        setting = next(iter(shown)) if len(shown) == 1 else "auto"
        if isinstance(setting, View) and video.size != dataset.split("train")[0].size:
            setting = "auto"
        videos.append(replace(video, split="train", view_setting=setting))
        videos[-1].masks = {}  # of another class table
    return replace(dataset, videos=videos), moved


def find_unlearnt_classes(
    dataset: Dataset, names: Sequence[str], looked: Callable[[], None] = lambda: None
) -> list[str]:
    """Find the classes in no mask of a training video, where `names` were held out of them for validation.

    The list is empty where a validation video is the dataset's own: missing classes are then a fault of the dataset,
    which should be seen in the scores. `looked` is called after every mask.
    """
    validation = [video for video in dataset.split("val") if video.with_mask]
    if not validation or not all(_is_named(video, names) for video in validation):
        return []
    missing = set(range(len(dataset.classes)))
    for video in dataset.split("train"):
        for index in video.with_mask:
            if not missing:
                return []
            with suppress(UserError):  # a damaged mask that is neither learnt from nor scored
                missing.difference_update(_classes_in(dataset.read_mask(video, index), len(dataset.classes)))
            looked()
    return [name for position, name in enumerate(dataset.classes.names) if position in missing]


def _is_named(video: Video, names: Sequence[str]) -> bool:
    return video.id in names or video.case in names


def _classes_in(labels: np.ndarray, classes: int) -> list[int]:
    return np.flatnonzero(np.bincount(labels.ravel(), minlength=256)[:classes]).tolist()
