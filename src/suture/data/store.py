"""The frame store: the frames a run uses, at training size, memory-mapped from a cache folder that all runs share.

One file per video and settings holds its frames, another its labels; so a run with another labelling finds the frames
already there. Files are named by what is in them (content, indices, view, size), so they are never wrong, only unused:
the whole folder may be deleted at any time. What is measured on the frames lies beside them, under the same name.
"""

import hashlib
import json
import math
import os
import shutil
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from suture.core.errors import UserError
from suture.core.io import check_format, locked, read_json, write_json
from suture.core.text import listed, number
from suture.core.workers import cores, given, pool_for
from suture.data import messages as mends
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Mask, Video
from suture.data.fingerprint import Fingerprints, cache_folder
from suture.data.view import View

FORMAT = 1
"""The newest store this version reads."""
MAX_ENLARGEMENT = 1.5
"""How much the smallest training crop may be enlarged before the store is too small for it."""
_CHUNK = 32
"""Frames per task: neighbours, so that a video file is decoded in one go."""


def storage_size(train_size: int, smallest_crop: float) -> int:
    """The short side of a stored view for a training size and the smallest crop's side as a fraction of the view's.

    >>> storage_size(480, 0.5)
    640
    """
    return math.ceil(train_size / (MAX_ENLARGEMENT * smallest_crop))


@dataclass(frozen=True)
class Fit:
    """How a video's native pixels become stored ones: cut to the view and shrunk, never enlarged, aspect kept."""

    name: str
    native: tuple[int, int]
    view: View
    shape: tuple[int, int]
    """Height and width as stored."""

    @staticmethod
    def of(video: Video, size: int) -> "Fit":
        """For views whose short side shall be `size`."""
        width, height = video.size
        view = video.view
        seen_width, seen_height = min(view.width, width - view.x), min(view.height, height - view.y)
        if seen_width < 1 or seen_height < 1:
            raise UserError(f"Video {video.id}: its view {view.to_json()} lies outside its {width}×{height} pixels.")
        scale = min(1.0, size / min(seen_width, seen_height))
        return Fit(video.id, video.size, view, (max(1, round(seen_height * scale)), max(1, round(seen_width * scale))))

    def frame(self, pixels: np.ndarray, index: int) -> np.ndarray:
        """Native pixels at storage size."""
        return self._shrink(pixels, index, cv2.INTER_AREA)

    def labels(self, ids: np.ndarray, index: int) -> np.ndarray:
        """Native class ids at storage size."""
        return self._shrink(ids, index, cv2.INTER_NEAREST_EXACT)

    def inside(self) -> np.ndarray:
        """Which stored pixels lie inside the view: all, or those of a circle."""
        mask = self.view.mask(*self.native).astype(np.uint8)
        return self._shrink(mask, 0, cv2.INTER_NEAREST_EXACT).astype(bool)

    def _shrink(self, array: np.ndarray, index: int, interpolation: int) -> np.ndarray:
        height, width = array.shape[:2]
        if (width, height) != self.native:
            raise UserError(mends.other_size(self.name, index, (width, height), self.native))
        seen = self.view.crop(array)
        if seen.shape[:2] == self.shape:
            return np.ascontiguousarray(seen)
        return cv2.resize(seen, self.shape[::-1], interpolation=interpolation)


class FrameStore:
    """Frames and labels at storage size, read from memory-mapped files.

    >>> store = FrameStore.open(dataset, {"case01": range(0, 900)}, {"case01": [0, 450]}, size=640)  # doctest: +SKIP
    >>> store.frame("case01", 17).shape, store.labels("case01", 450).shape  # doctest: +SKIP
    ((640, 800, 3), (640, 800))
    """

    def __init__(
        self, fits: Mapping[str, Fit], frames: Mapping[str, "_StoreFile"], labels: Mapping[str, "_StoreFile"]
    ) -> None:
        self._fits = dict(fits)
        self._frames = dict(frames)
        self._labels = dict(labels)

    @staticmethod
    def open(
        dataset: Dataset,
        frames: Mapping[str, Sequence[int]],
        labelled: Mapping[str, Sequence[int]],
        size: int,
        cache: Path | None = None,
        workers: int | None = None,
        progress: bool = True,
    ) -> "FrameStore":
        """The store of these frames and of the labels of `labelled`; what the cache folder lacks is built first."""
        cache = cache or cache_folder()
        _check_format(cache)
        console = Console(stderr=True, quiet=not progress)
        wanted = {video: tidy for video in frames if (tidy := _tidy(dataset[video], frames[video]))}
        wanted_labels = {video: tidy for video in labelled if (tidy := _tidy(dataset[video], labelled[video]))}
        frame_parts, label_parts = {}, {}
        with console.status("Looking for the frames in the frame store"), ThreadPoolExecutor() as threads:
            names = list({**wanted, **wanted_labels})
            fits = dict(zip(names, threads.map(lambda name: Fit.of(dataset[name], size), names), strict=True))
            prints = Fingerprints(cache)
            contents = dict(zip(wanted, prints.videos([dataset[video] for video in wanted]), strict=True))
            for video, indices in wanted.items():
                key = frames_key(contents[video], indices, fits[video])
                frame_parts[video] = _StoreFile(
                    cache / "frames" / f"{key}.npy", video, indices, (*fits[video].shape, 3)
                )
            for video, indices in wanted_labels.items():
                masks = [_mask_of(dataset[video], index) for index in indices]
                annotated = [mask.annotated for mask in masks]
                key = labels_key(prints.masks(masks), annotated, dataset.classes, indices, fits[video])
                label_parts[video] = _StoreFile(cache / "labels" / f"{key}.npy", video, indices, fits[video].shape)
        _complete([*frame_parts.values(), *label_parts.values()], dataset, fits, cache, workers, console)
        return FrameStore(fits, frame_parts, label_parts)

    def frame(self, video: str, index: int) -> np.ndarray:
        """RGB, uint8, H W 3: a read-only window into the file; `KeyError` if the store does not hold it."""
        return self._frames[video].read(index)

    def labels(self, video: str, index: int) -> np.ndarray:
        """Class ids, uint8, H W; `KeyError` if the frame is not labelled."""
        return self._labels[video].read(index)

    def inside(self, video: str) -> np.ndarray:
        """Which pixels lie inside the view, bool, H W."""
        return self._fits[video].inside()

    def beside(self, video: str, kind: str) -> Path:
        """The file in which all runs keep what is made of nothing but the stored frames of a video."""
        frames = self._frames[video].path
        return frames.parents[1] / kind / frames.name

    @property
    def nbytes(self) -> int:
        """Bytes of pixels and labels that this store maps."""
        return sum(part.nbytes for part in [*self._frames.values(), *self._labels.values()])


class _StoreFile:
    """One file of the store: some frames, or the labels, of one video."""

    def __init__(self, path: Path, video: str, indices: Sequence[int], item: tuple[int, ...]) -> None:
        self.path = path
        self.video = video
        self.indices = indices
        self.item = item
        self._pixels: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pixels": None}  # a pickled memory map would carry all its pixels

    @property
    def is_frames(self) -> bool:
        return len(self.item) == 3

    @property
    def nbytes(self) -> int:
        return len(self.indices) * math.prod(self.item)

    @property
    def is_whole(self) -> bool:
        """Whether the file is there, and not cut off as by a copy of the cache folder that was stopped."""
        try:
            return np.load(self.path, mmap_mode="r").shape == (len(self.indices), *self.item)
        except (OSError, ValueError, EOFError):
            return False

    @property
    def temporary(self) -> Path:
        return self.path.with_suffix(".tmp")

    def read(self, index: int) -> np.ndarray:
        if self._pixels is None:
            mapped = np.load(self.path, mmap_mode="r")
            self._pixels = mapped.view(np.ndarray)  # indexing a memmap object costs more than reading the pixels
        row = bisect_left(self.indices, index)
        if row == len(self.indices) or self.indices[row] != index:
            raise KeyError((self.video, index))
        return self._pixels[row]

    def begin(self) -> None:
        """Make the temporary file: header and room for the pixels."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        np.lib.format.open_memmap(self.temporary, "w+", np.uint8, (len(self.indices), *self.item))

    def write(self, row: int, pixels: np.ndarray) -> None:
        """Write one frame by a plain write, which fails cleanly on a full disk where a memory map would crash."""
        with self.temporary.open("r+b") as file:
            file.seek(row * math.prod(self.item) - self.nbytes, os.SEEK_END)
            file.write(np.ascontiguousarray(pixels).data)

    def finish(self) -> None:
        """Give the file its name, once its pixels are really on the disk."""
        with self.temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(self.temporary, self.path)


def frames_key(content: str, indices: Sequence[int], fit: Fit) -> str:
    """The name of what is stored of a video's frames, given its content's SHA-256."""
    return _sha256("frames", content, list(indices), fit.native, fit.view.to_json(), fit.shape)


def labels_key(
    contents: Sequence[str],
    annotated: Sequence[tuple[str, ...] | None],
    classes: ClassTable,
    indices: Sequence[int],
    fit: Fit,
) -> str:
    """The name of what is stored of a video's labels, given each mask's SHA-256 and the classes annotated in it."""
    table = [classes.names, sorted((str(value), target) for value, target in classes.values.items()), classes.unpainted]
    masks = [*contents], [*annotated]
    return _sha256("labels", masks, table, list(indices), fit.native, fit.view.to_json(), fit.shape)


def _sha256(*parts: Any) -> str:
    return hashlib.sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()


def _mask_of(video: Video, index: int) -> Mask:
    mask = video.masks.get(index)
    if mask is None:
        raise UserError(f"Frame {index} of video {video.id} is said to be labelled but has no mask.")
    return mask


def _tidy(video: Video, indices: Sequence[int]) -> list[int]:
    tidy = sorted(set(indices))
    if tidy and not 0 <= tidy[0] <= tidy[-1] < len(video):
        wrong = tidy[0] if tidy[0] < 0 else tidy[-1]
        raise UserError(f"Video {video.id} has {len(video)} frames, frame {wrong} was asked for.")
    return tidy


def _check_format(cache: Path) -> None:
    path = cache / "store.json"
    if path.exists():
        content = read_json(path)
        check_format(path, content.get("format") if isinstance(content, dict) else None, FORMAT)


def _complete(
    parts: Sequence[_StoreFile],
    dataset: Dataset,
    fits: Mapping[str, Fit],
    cache: Path,
    workers: int | None,
    console: Console,
) -> None:
    """Build the parts that are missing; only one process at a time builds in a cache folder."""
    if all(part.is_whole for part in parts):
        return
    another = f"Another process is building the frame store in {cache}: waiting for it."
    try:
        with locked(cache / "store.lock", lambda: console.print(another, highlight=False)):
            for stale in [*cache.glob("frames/*.tmp"), *cache.glob("labels/*.tmp")]:
                stale.unlink()  # of a process that was killed: nobody else builds now
            missing = [part for part in {part.path: part for part in parts}.values() if not part.is_whole]
            if missing:
                _refuse_without_room(missing, cache, console)
                write_json(cache / "store.json", {"format": FORMAT})
                _build(missing, dataset, fits, workers, console)
    except OSError as error:
        raise UserError(
            f"The frame store in {cache} cannot be written ({error}): set SUTURE_CACHE to another folder."
        ) from error


def _refuse_without_room(missing: Sequence[_StoreFile], cache: Path, console: Console) -> None:
    needed = sum(part.nbytes for part in missing)
    frames = sum(len(part.indices) for part in missing if part.is_frames)
    videos = len({part.video for part in missing})
    free = shutil.disk_usage(cache).free
    masks = sum(len(part.indices) for part in missing) - frames
    parts = [number(count, noun) for count, noun in ((frames, "frame"), (masks, "mask")) if count]
    what = f"{listed(parts)} of {number(videos, 'video')}"
    console.print(f"Frame store: {what} need {_size(needed)} in {cache} ({_size(free)} free).", highlight=False)
    if needed > 0.95 * free:
        raise UserError(
            f"The frame store needs {_size(needed)} in {cache}, but only {_size(free)} are free there: make room, "
            "set SUTURE_CACHE to a folder on a larger disk, or take fewer frames of the videos (`take_every` in "
            "dataset.yaml)."
        )


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def _build(
    parts: Sequence[_StoreFile], dataset: Dataset, fits: Mapping[str, Fit], workers: int | None, console: Console
) -> None:
    chunks = [
        (number, first, min(first + _CHUNK, len(part.indices)))
        for number, part in enumerate(parts)
        for first in range(0, len(part.indices), _CHUNK)
    ]
    left = [math.ceil(len(part.indices) / _CHUNK) for part in parts]
    workers = min(workers or cores(), len(chunks))
    try:
        with pool_for("building the frame store", workers, dataset, fits, parts) as pool:
            for part in parts:
                part.begin()
            # Masks first: they are few, and what is wrong with one is told before hours of video are decoded.
            for of_frames, title in ((False, "Reading the masks"), (True, "Building the frame store")):
                wanted = [chunk for chunk in chunks if parts[chunk[0]].is_frames is of_frames]
                if not wanted:
                    continue
                columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
                with Progress(*columns, console=console, transient=not of_frames) as bar:
                    task = bar.add_task("", total=sum(last - first for _, first, last in wanted))
                    futures = {pool.submit(_build_chunk, *chunk): chunk for chunk in wanted}
                    for future in as_completed(futures):
                        future.result()
                        number, first, last = futures[future]
                        bar.advance(task, last - first)
                        left[number] -= 1
                        if not left[number]:
                            parts[number].finish()
    finally:
        for part in parts:
            part.temporary.unlink(missing_ok=True)


def _build_chunk(number: int, first: int, last: int) -> None:
    dataset, fits, parts = given()
    part = parts[number]
    video, fit = dataset[part.video], fits[part.video]
    for row in range(first, last):
        index = part.indices[row]
        if part.is_frames:
            part.write(row, fit.frame(video.read(index), index))
        else:
            part.write(row, fit.labels(dataset.read_mask(video, index), index))
