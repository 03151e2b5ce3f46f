"""The files of one clip: masks, painted frames and videos.

It needs no PyTorch, because the writer processes of `suture.prediction.fast` use it too.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from suture.core.errors import UserError
from suture.data.classes import IGNORE, ClassTable
from suture.data.overlay import PLAIN_STYLE, Overlay, OverlayStyle, stamp
from suture.data.yuv import YuvToRgb, frame_size, sample_planes, yuv_to_rgb
from suture.prediction.flow_agreement import Thumbnail, flow_agreement
from suture.prediction.frame_table import finite
from suture.prediction.mask_files import read_written_mask, write_mask, write_picture
from suture.prediction.video_writer import SQUARE, Accepted, VideoWriter, rgb_to_planes, video_frame, video_writer

FINISH_THREADS = 8
"""Threads that make the files of single frames: enough for several hundred large frames per second."""
COMPARE_THREADS = 2
"""Threads that compare neighbouring masks."""
Written = tuple[int, float | None]
"""Index of a frame that is written, and the flow agreement of its mask with the one before."""


@dataclass(frozen=True)
class OutputPlan:
    """Files to write for a clip, or the share of one process."""

    folder: Path
    classes: ClassTable
    masks: bool = False
    """One PNG per frame."""
    pictures: bool = False
    """One painted JPEG per frame."""
    mask_video: bool = False
    overlay_video: bool = False
    fps: float = 0
    """Frame rate of the videos."""
    pixel_aspect: Fraction = SQUARE
    """Aspect ratio of the overlay video's pixels."""
    begin: float = 0.0
    """Time (s) at which the videos begin."""
    title: str = ""
    """Name that the overlay video shows beside the time."""
    style: OverlayStyle = PLAIN_STYLE
    compare: bool = True
    """Measure the flow agreement of neighbouring masks."""

    def mask_path(self, name: str) -> Path:
        return self.folder / "masks" / f"{name}.png"

    def picture_path(self, name: str) -> Path:
        return self.folder / "overlay" / f"{name}.jpg"

    @property
    def videos(self) -> "OutputPlan | None":
        """The share that needs all frames in their order; None if there are no videos."""
        wanted = self.mask_video or self.overlay_video
        return replace(self, masks=False, pictures=False, compare=False) if wanted else None

    @property
    def images(self) -> "OutputPlan":
        """The share that takes frames in any order."""
        return replace(self, mask_video=False, overlay_video=False)


@dataclass(frozen=True, eq=False)
class PredictedFrame:
    """A frame with its mask."""

    index: int
    name: str
    time: float
    """Seconds; 0 for images."""
    pixels: np.ndarray | None = None
    """RGB, or planes that `colours` convert. None if the frame cannot be used."""
    mask: np.ndarray | None = None
    """None if an earlier start wrote it."""
    planes: np.ndarray | None = None
    """Planes of its overlay, if a GPU painted it."""
    colours: YuvToRgb | None = None

    @property
    def rgb(self) -> np.ndarray:
        """The frame in RGB."""
        assert self.pixels is not None
        return self.pixels if self.colours is None else yuv_to_rgb(sample_planes(self.pixels), self.colours)

    @property
    def size(self) -> tuple[int, ...]:
        """Height and width."""
        assert self.pixels is not None
        return frame_size(self.pixels.shape, planes=self.colours is not None)


@dataclass(frozen=True, eq=False)
class FinishedFrame:
    """A frame whose own files are written; what its neighbours and the videos need of it."""

    index: int
    time: float
    new: bool
    """It was not written by an earlier start."""
    mask: np.ndarray | None = None
    thumbnail: Thumbnail | None = None
    overlay: Any = None
    """Frame of the overlay video."""


class ClipFiles:
    """Writes the files of a plan: `finish` by any thread, `add` in the order of the frames.

    Videos begin with the first frame that has a mask, and are complete when the block is left.
    """

    def __init__(self, plan: OutputPlan) -> None:
        self.plan = plan
        self._overlays: dict[tuple[int, ...], Overlay] = {}
        self._overlay_video: VideoWriter | None = None
        self._mask_video: VideoWriter | None = None
        self._open = ExitStack()
        self._waiting: list[FinishedFrame] = []
        """Frames before the first mask."""
        self._size: tuple[int, ...] | None = None
        """Height and width of the masks, once there is one."""

    def __enter__(self) -> "ClipFiles":
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._open.__exit__(*raised)

    def finish(self, frame: PredictedFrame) -> FinishedFrame:
        """Make all that one frame gives without its neighbours."""
        plan, pixels, mask, planes = self.plan, frame.pixels, frame.mask, frame.planes
        if pixels is None:
            return FinishedFrame(frame.index, frame.time, True)
        if mask is None:
            mask = read_written_mask(plan.mask_path(frame.name))
            if mask is None or mask.shape != frame.size:
                raise UserError(f"{plan.mask_path(frame.name)} was changed or removed: start again with --force.")
        elif plan.masks:
            write_mask(plan.mask_path(frame.name), mask, plan.classes)
        if plan.pictures and frame.mask is not None:
            write_picture(plan.picture_path(frame.name), self._overlay(mask.shape)(frame.rgb, mask))
        shown = None
        if plan.overlay_video:
            overlay = self._overlay(mask.shape)
            planes = rgb_to_planes(overlay(frame.rgb, mask)) if planes is None else planes
            if plan.title and overlay.legend is not None:
                minutes, seconds = divmod(frame.time, 60)
                stamp(
                    planes[: mask.shape[0]],
                    f"{plan.title}  {int(minutes) // 60}:{int(minutes) % 60:02}:{seconds:04.1f}",
                )
            shown = video_frame(planes, "yuv420p")
        thumbnail = Thumbnail.of(pixels, mask, frame.colours) if plan.compare else None
        return FinishedFrame(frame.index, frame.time, frame.mask is not None, mask, thumbnail, shown)

    def add(self, frame: FinishedFrame) -> Accepted:
        """Add the next frame to the videos; the memory of its overlay is needed until it is accepted."""
        if self._size is None:
            if frame.mask is None:
                self._waiting.append(frame)
                return None
            self._begin(frame.mask.shape)
        return self._add(frame)

    def _begin(self, size: tuple[int, ...]) -> None:
        plan, self._size = self.plan, size
        if plan.overlay_video:
            video = video_writer(plan.folder / "overlay.mp4", "libx264", plan.fps, plan.pixel_aspect)
            self._overlay_video = self._open.enter_context(video)
        if plan.mask_video:  # without the aspect, which PyAV cannot write into Matroska
            self._mask_video = self._open.enter_context(video_writer(plan.folder / "masks.mkv", "ffv1", plan.fps))
        for frame in self._waiting:
            self._add(frame)

    def _add(self, frame: FinishedFrame) -> Accepted:
        accepted, time = None, frame.time - self.plan.begin
        if self._overlay_video is not None and frame.overlay is not None:
            accepted = self._overlay_video.add(frame.overlay, time)
        if self._mask_video is not None:
            # A frame without a mask is all ignore, so that frames keep their numbers.
            mask = frame.mask if frame.mask is not None else np.full(self._size or (), IGNORE, np.uint8)
            self._mask_video.add(video_frame(mask, "gray"), time)
        return accepted

    def _overlay(self, size: tuple[int, ...]) -> Overlay:
        if size not in self._overlays:
            self._overlays[size] = Overlay(self.plan.classes, size[1], size[0], self.plan.style)
        return self._overlays[size]


def with_previous(
    frames: Iterable[FinishedFrame], previous: Thumbnail | None = None
) -> Iterator[tuple[Thumbnail | None, FinishedFrame]]:
    """Pair each frame with the thumbnail of the last one before it that has a mask."""
    for frame in frames:
        yield previous, frame
        previous = frame.thumbnail or previous


def compare(previous: Thumbnail | None, frame: FinishedFrame) -> Written:
    """Measure the flow agreement of a new mask."""
    if previous is None or frame.thumbnail is None or not frame.new:
        return frame.index, None
    return frame.index, finite(flow_agreement(previous, frame.thumbnail))
