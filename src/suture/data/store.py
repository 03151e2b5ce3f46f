"""The frame store: frames at training size, memory-mapped from a cache folder that all runs share.

One file per video and settings holds its frames, another its labels, so a run with another labelling finds the frames
already there. Files are named by their content (pixels, indices, view, size): they are never wrong, only unused, and
the folder may be deleted at any time. Curves and other measurements of the frames lie beside them, under the same name.
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

from suture.core.errors import UserError
from suture.core.io import locked
from suture.core.progress import ProgressBar
from suture.core.text import number
from suture.core.workers import cores, given, pool_for
from suture.data import messages
from suture.data.cache import cache_folder
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Mask, Video
from suture.data.fingerprint import Fingerprints
from suture.data.view import View

FORMAT = 1
"""Part of every file's name."""
MAX_ENLARGEMENT = 1.5
"""Largest factor by which the smallest training crop is enlarged."""
_CHUNK_FRAMES = 32
"""Frames per task: neighbours, so that a video file is decoded in one go."""


def storage_size(train_size: int, smallest_crop: float) -> int:
    """Short side of a stored view.

    Args:
        train_size: Side of the training images.
        smallest_crop: Side of the smallest crop as a fraction of the view's.

    >>> storage_size(480, 0.5)
    640
    """
    return math.ceil(train_size / (MAX_ENLARGEMENT * smallest_crop))


@dataclass(frozen=True)
class Fit:
    """Mapping of a video's native pixels to stored ones: cut to the view and shrunk, never enlarged, aspect kept."""

    name: str
    native: tuple[int, int]
    view: View
    shape: tuple[int, int]
    """Height and width as stored."""

    @staticmethod
    def of(video: Video, size: int) -> "Fit":
        """Fit a video whose stored views have a short side of at most `size`."""
        view = video.view
        scale = min(1.0, size / min(view.width, view.height))
        return Fit(video.id, video.size, view, (max(1, round(view.height * scale)), max(1, round(view.width * scale))))

    def frame(self, pixels: np.ndarray, index: int) -> np.ndarray:
        """Shrink native pixels to storage size."""
        return self._shrink(pixels, index, cv2.INTER_AREA)

    def labels(self, ids: np.ndarray, index: int) -> np.ndarray:
        """Shrink native class ids to storage size."""
        return self._shrink(ids, index, cv2.INTER_NEAREST_EXACT)

    def inside(self) -> np.ndarray:
        """Stored pixels inside the view, bool: all, or those of a circle."""
        mask = self.view.mask(*self.native).astype(np.uint8)
        return self._shrink(mask, 0, cv2.INTER_NEAREST_EXACT).astype(bool)

    def _shrink(self, array: np.ndarray, index: int, interpolation: int) -> np.ndarray:
        height, width = array.shape[:2]
        if (width, height) != self.native:
            raise UserError(messages.other_size(self.name, index, (width, height), self.native))
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
        """Open the store of these frames and labels, building what the cache folder lacks.

        Args:
            dataset: Source of the frames and masks.
            frames: Indices of the frames by video.
            labelled: Indices of the frames whose labels are stored, by video.
            size: Short side of the stored views.
            cache: Folder, by default `cache_folder()`.
            workers: Number of processes that build, by default one per core.
            progress: Print progress to standard error.
        """
        cache = cache or cache_folder()
        console = Console(stderr=True, quiet=not progress)
        frames, labelled = (
            {video: _valid_indices(dataset[video], indices) for video, indices in of_videos.items() if len(indices)}
            for of_videos in (frames, labelled)
        )
        with console.status("Looking for the frames in the frame store"), ThreadPoolExecutor() as threads:
            names = list({**frames, **labelled})
            fits = dict(zip(names, threads.map(lambda name: Fit.of(dataset[name], size), names), strict=True))
            prints = Fingerprints(cache)
            frame_files, label_files = {}, {}
            contents = prints.videos([dataset[video] for video in frames])
            for (video, indices), content in zip(frames.items(), contents, strict=True):
                path = cache / "frames" / f"{frames_key(content, indices, fits[video])}.npy"
                frame_files[video] = _StoreFile(path, video, indices, (*fits[video].shape, 3))
            for video, indices in labelled.items():
                masks = [_mask_of(dataset[video], index) for index in indices]
                annotated = [mask.annotated for mask in masks]
                key = labels_key(prints.masks(masks), annotated, dataset.classes, indices, fits[video])
                label_files[video] = _StoreFile(cache / "labels" / f"{key}.npy", video, indices, fits[video].shape)
        # Masks first: they are few, and a mistake in one is reported before hours of video are decoded.
        files = [*label_files.values(), *frame_files.values()]
        if not all(file.is_whole for file in files):
            _complete(files, dataset, fits, cache, workers or cores(), console)
        return FrameStore(fits, frame_files, label_files)

    def frame(self, video: str, index: int) -> np.ndarray:
        """Return a frame as RGB, uint8, H W 3, read-only; `KeyError` if it is not stored."""
        return self._frames[video].read(index)

    def labels(self, video: str, index: int) -> np.ndarray:
        """Return the class ids of a frame, uint8, H W, read-only; `KeyError` if they are not stored."""
        return self._labels[video].read(index)

    def inside(self, video: str) -> np.ndarray:
        """Pixels inside the view, bool, H W."""
        return self._fits[video].inside()

    def derived_path(self, video: str, kind: str) -> Path:
        """Path of a file that is derived from the stored frames of a video alone, and that all runs share."""
        frames = self._frames[video].path
        return frames.parents[1] / kind / frames.name

    @property
    def nbytes(self) -> int:
        """Bytes of pixels and labels that this store maps."""
        return sum(file.nbytes for file in [*self._frames.values(), *self._labels.values()])


class _StoreFile:
    """One file of the store: some frames, or the labels, of one video."""

    def __init__(self, path: Path, video: str, indices: Sequence[int], item: tuple[int, ...]) -> None:
        self.path = path
        self.temporary = path.with_suffix(".tmp")
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
        """True if the file is there and not cut off."""
        try:
            return np.load(self.path, mmap_mode="r").shape == (len(self.indices), *self.item)
        except (OSError, ValueError, EOFError):
            return False

    def read(self, index: int) -> np.ndarray:
        if self._pixels is None:
            mapped = np.load(self.path, mmap_mode="r")
            self._pixels = mapped.view(np.ndarray)  # indexing a memmap object costs more than reading the pixels
        row = bisect_left(self.indices, index)
        if row == len(self.indices) or self.indices[row] != index:
            raise KeyError((self.video, index))
        return self._pixels[row]

    def begin(self) -> None:
        """Create the temporary file: header and room for the pixels."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        np.lib.format.open_memmap(self.temporary, "w+", np.uint8, (len(self.indices), *self.item))

    def write(self, row: int, pixels: np.ndarray) -> None:
        """Write one frame by a plain write, which fails cleanly on a full disk where a memory map would crash."""
        with self.temporary.open("r+b") as file:
            file.seek(row * math.prod(self.item) - self.nbytes, os.SEEK_END)
            file.write(np.ascontiguousarray(pixels).data)

    def finish(self) -> None:
        """Give the file its name, once its pixels are on the disk."""
        with self.temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(self.temporary, self.path)


def frames_key(content: str, indices: Sequence[int], fit: Fit) -> str:
    """Name of the file of a video's frames, given the SHA-256 of its content."""
    return _sha256("frames", content, list(indices), fit.native, fit.view.to_json(), fit.shape)


def labels_key(
    contents: Sequence[str],
    annotated: Sequence[tuple[str, ...] | None],
    classes: ClassTable,
    indices: Sequence[int],
    fit: Fit,
) -> str:
    """Name of the file of a video's labels, given each mask's SHA-256 and annotated classes."""
    table = [classes.names, sorted((str(value), target) for value, target in classes.values.items()), classes.unpainted]
    masks = [*contents], [*annotated]
    return _sha256("labels", masks, table, list(indices), fit.native, fit.view.to_json(), fit.shape)


def _sha256(*parts: Any) -> str:
    return hashlib.sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()


def _mask_of(video: Video, index: int) -> Mask:
    mask = video.masks.get(index)
    if mask is None:
        raise UserError(f"Frame {index} of video {video.id} is listed as labelled but has no mask.")
    return mask


def _valid_indices(video: Video, indices: Sequence[int]) -> list[int]:
    """Sort indices; raise if the video has no such frames."""
    valid = sorted(set(indices))
    if not 0 <= valid[0] <= valid[-1] < len(video):
        wrong = valid[0] if valid[0] < 0 else valid[-1]
        raise UserError(f"Video {video.id} has {len(video)} frames; there is no frame {wrong}.")
    return valid


def _complete(
    files: Sequence[_StoreFile],
    dataset: Dataset,
    fits: Mapping[str, Fit],
    cache: Path,
    workers: int,
    console: Console,
) -> None:
    """Build the files that are missing; only one process at a time builds in a cache folder."""
    another = f"Another process is building the frame store in {cache}: waiting for it."
    try:
        with locked(cache / "store.lock", lambda: console.print(another, highlight=False)):
            for stale in [*cache.glob("frames/*.tmp"), *cache.glob("labels/*.tmp")]:
                stale.unlink()  # of a process that was killed: only the owner of the lock builds
            missing = [file for file in {file.path: file for file in files}.values() if not file.is_whole]
            if missing:
                _require_space(missing, cache, console)
                _build(missing, dataset, fits, workers, console)
    except OSError as error:
        raise UserError(
            f"The frame store in {cache} cannot be written ({error}): set SUTURE_CACHE to another folder."
        ) from error


def _require_space(missing: Sequence[_StoreFile], cache: Path, console: Console) -> None:
    """Print the size of the files to build; raise if the disk lacks the room."""
    needed, free = sum(file.nbytes for file in missing), shutil.disk_usage(cache).free
    frames, masks = (sum(len(file.indices) for file in missing if file.is_frames is kind) for kind in (True, False))
    size, room = (f"{count / 1e6:,.1f} MB" for count in (needed, free))
    content = f"{number(frames, 'frame')} and {number(masks, 'mask')}"
    console.print(f"Frame store: {content} need {size} in {cache} ({room} free).", highlight=False)
    if needed > 0.95 * free:
        raise UserError(
            f"The frame store needs {size} in {cache}, but only {room} are free: make room, set SUTURE_CACHE to a "
            "folder on a larger disk, or use fewer frames (`take_every` in dataset.yaml)."
        )


def _build(
    files: Sequence[_StoreFile], dataset: Dataset, fits: Mapping[str, Fit], workers: int, console: Console
) -> None:
    """Build files by worker processes, masks before frames."""
    left = [math.ceil(len(file.indices) / _CHUNK_FRAMES) for file in files]
    total = sum(len(file.indices) for file in files)
    try:
        with (
            pool_for("building the frame store", min(workers, sum(left)), dataset, fits, files) as pool,
            ProgressBar(console, keep=True) as bar,
        ):
            task = bar.add_task("Building the frame store", total=total)
            for file in files:
                file.begin()
            for kind in (False, True):
                futures = {
                    pool.submit(_build_chunk, place, first): place
                    for place, file in enumerate(files)
                    if file.is_frames is kind
                    for first in range(0, len(file.indices), _CHUNK_FRAMES)
                }
                for future in as_completed(futures):
                    bar.advance(task, future.result())
                    place = futures[future]
                    left[place] -= 1
                    if not left[place]:
                        files[place].finish()
    finally:
        for file in files:
            file.temporary.unlink(missing_ok=True)


def _build_chunk(place: int, first: int) -> int:
    """Write a chunk of one file; return the number of its frames."""
    dataset, fits, files = given()
    file = files[place]
    video, fit = dataset[file.video], fits[file.video]
    rows = range(first, min(first + _CHUNK_FRAMES, len(file.indices)))
    for row in rows:
        index = file.indices[row]
        if file.is_frames:
            file.write(row, fit.frame(video.read(index), index))
        else:
            file.write(row, fit.labels(dataset.read_mask(video, index), index))
    return len(rows)
