"""The frames of one input: a video file, or the images of a folder."""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from suture.core.errors import UserError
from suture.data.find_view import find_view, view_frames
from suture.data.images import deinterlace, read_image
from suture.data.labelling import frame_name
from suture.data.video import DecodedFrame, VideoFile, YuvPlanes
from suture.data.view import View
from suture.data.yuv import YuvToRgb, frame_size
from suture.prediction.prefetch import cores, map_ordered

IDENTITY_SAMPLES, SAMPLE_BYTES = 4, 65_536
"""Parts of a file that are hashed to tell it from others: how many, and their size."""
CONVERTER_THREADS = 4
"""Threads that convert a video's frames to RGB; together they are faster than most decoders."""


@dataclass(frozen=True, eq=False)
class ClipFrame:
    """One frame of a clip."""

    index: int
    name: str
    """Name of its results."""
    time: float | None
    """Seconds; None for images."""
    pixels: np.ndarray | DecodedFrame | YuvPlanes | None
    """RGB (H, W, 3), uint8; or what is converted to it. None if the frame cannot be used."""
    problem: str = ""
    """Reason why it cannot be used."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width."""
        if not isinstance(self.pixels, np.ndarray | YuvPlanes):
            return None
        return frame_size(self.pixels.shape, planes=self.colours is not None)

    @property
    def colours(self) -> YuvToRgb | None:
        """Conversion of its planes to RGB; None if it is RGB."""
        return self.pixels.colours if isinstance(self.pixels, YuvPlanes) else None

    def converted(self, planes: bool = False) -> "ClipFrame":
        """Return the frame in RGB, or with `planes` as planes if it is of a kind that has them."""
        if not isinstance(self.pixels, DecodedFrame):
            return self
        return replace(self, pixels=(self.pixels.planes() if planes else None) or self.pixels.rgb())


def fill_batch(memory: np.ndarray, frames: Sequence[Any]) -> np.ndarray:
    """Copy the pixels of frames of one kind into memory for a batch; spare places repeat the last frame."""
    for number, target in enumerate(memory):
        frame = frames[min(number, len(frames) - 1)]
        if isinstance(frame, YuvPlanes):
            frame.copy_to(target)
        else:
            np.copyto(target, frame)
    return memory


@dataclass(eq=False)
class InputClip:
    """The frames of a video file, or of images of one folder, in order."""

    path: Path
    """Video file, folder, or single image; for images grouped by name, the folder with the name of the video."""
    images: Sequence[Path] = ()
    """Empty for a video file."""
    name: str = ""
    """Name of the folder of its results, different from those of the other clips."""
    deinterlace: bool = False

    @cached_property
    def file(self) -> VideoFile | None:
        """The video file, if it is one."""
        return None if self.images else VideoFile(self.path, cores(), self.deinterlace)

    def __len__(self) -> int:
        return len(self.file) if self.file else len(self.images)

    def indices(self, start: float, end: float | None, every: int) -> Sequence[int]:
        """Return every n-th frame between two seconds of a video; images have no times and are all in it."""
        if self.file is None or (start, end) == (0, None):
            return range(0, len(self), every)
        first, last = np.searchsorted(self.file.times, [start, np.inf if end is None else end])
        if first == last:
            raise UserError(f"{self.path} has no frame between --start {start:g} and --end {end or 'the end'}.")
        return range(int(first), int(last), every)

    @cached_property
    def nbytes(self) -> int:
        """Size of its files; missing ones count nothing."""
        return sum(os.stat(path).st_size for path in self.images or [self.path] if os.path.exists(path))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Names and sizes of its files, and a hash of samples of them.

        Uncompressed frames have the same names and sizes in every video; reading all bytes would take too long.
        """
        files = self.images or [self.path]
        digest = hashlib.sha256("\0".join(file.name for file in files).encode())
        for file in (files[0], files[len(files) // 2], files[-1]):
            if file.is_file():
                with contextlib.suppress(OSError), file.open("rb") as content:  # the reader reports it
                    for place in range(IDENTITY_SAMPLES):
                        content.seek(file.stat().st_size * place // IDENTITY_SAMPLES)
                        digest.update(content.read(SAMPLE_BYTES))
        return {"name": self.path.name, "bytes": self.nbytes, "images": len(self.images), "sample": digest.hexdigest()}

    def frame_name(self, index: int) -> str:
        """Name of the results of one frame, as `suture select` names extracted frames."""
        return self.images[index].stem if self.images else frame_name(self.name, index)

    def frames(self, indices: Iterable[int], together: int = 1, planes: bool = False) -> Iterator[ClipFrame]:
        """Read frames by rising indices; one that does not decode comes without pixels.

        Args:
            indices: Of the frames.
            together: Frames that are handed to another thread at once.
            planes: Leave frames as planes, where possible, for a GPU to convert.
        """
        if self.images:
            return map_ordered(self.read, indices, cores())
        # One decoder goes forward; its frames are converted in parallel.
        decoded = map(self._decode, indices)
        return map_ordered(lambda frame: frame.converted(planes), decoded, min(CONVERTER_THREADS, cores()), together)

    def read(self, index: int) -> ClipFrame:
        """Read one frame in RGB."""
        return self._decode(index).converted()

    def _decode(self, index: int) -> ClipFrame:
        path = self.images[index] if self.images else self.path
        time = None if self.file is None else round(float(self.file.times[index]), 6)
        name = self.frame_name(index)
        try:
            return ClipFrame(index, name, time, self.file.decode(index) if self.file else self._read_image(path))
        except UserError as error:
            # Results name files, not their folders, which can name a patient.
            return ClipFrame(index, name, time, None, str(error).replace(str(path), path.name))

    def _read_image(self, path: Path) -> np.ndarray:
        return deinterlace(read_image(path)) if self.deinterlace else read_image(path)

    def find_view(self, setting: "ClipView | Literal['auto']") -> "ClipView":
        """Return the view of its frames: as set, or found if the setting is `auto` or for frames of another size."""
        if setting != "auto" and setting.size is None:
            return setting
        indices = view_frames(len(self))
        pixels = [self.read(index).pixels for index in (self.file.near_keys(indices) if self.file else indices)]
        frames = [frame for frame in pixels if isinstance(frame, np.ndarray)]
        size = frames[0].shape[:2] if frames else None
        if setting != "auto" and (size is None or setting.fits(size)):
            return setting
        view = find_view(frames)
        return ClipView(view, size, "found" if view else "no border was found")


@dataclass(frozen=True)
class ClipView:
    """The view of a clip's frames."""

    view: View | None
    """None is the whole frame."""
    size: tuple[int, ...] | None = None
    """Height and width of the frames that it holds for; None is any."""
    origin: str = "as stated"

    def fits(self, size: tuple[int, ...]) -> bool:
        """True if it holds for frames of this size."""
        return self.size in (None, size)

    def of(self, size: tuple[int, ...]) -> View | None:
        """View of frames of one size."""
        return self.view if self.fits(size) else None

    def problem(self, width: int, height: int) -> str:
        """Message if a stated view does not lie within frames of this size, else empty."""
        if self.view is None or self.size is not None or self.view.is_within(width, height):
            return ""
        return f"the view {self.view} reaches out of {width}×{height} pixels, expected x,y,w,h that lie within"

    def __str__(self) -> str:
        if self.view is None:
            return f"the whole frame, {self.origin}"
        return f"{self.view}{', round' if self.view.circle else ''}, {self.origin}"


def read_training_view(value: Any, where: str) -> "ClipView | Literal['auto']":
    """Parse the view that `suture.data.dataset.training_view` noted in a model."""
    if value == "auto":
        return "auto"
    view = View.parse(value["view"], where) if value["view"] else None
    return ClipView(view, tuple(value["size"]) if value["size"] else None, "as in training")
