"""The files of a clip: what is made of its frames and their masks, in whichever process; it needs no PyTorch.

What a frame gives without its neighbours is made by any thread, and what needs the order is added frame by frame.
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
from suture.data.overlay import Overlay
from suture.data.yuv import YuvToRgb, frame_size, sample_planes, yuv_to_rgb
from suture.prediction.outputs import number, read_written_mask, write_mask, write_picture
from suture.prediction.stability import Small, flow_agreement
from suture.prediction.video_writer import SQUARE, Taken, VideoWriter, to_yuv, video_frame, video_writer

FINISHING = 8
"""Threads that make files of frames: enough for several hundred large frames a second."""
COMPARING = 2
"""Threads that compare neighbours along the flow."""
Done = tuple[int, float | None]
"""The number of a frame that is written, and how far its mask, if it is new, agrees with the one before."""


@dataclass(frozen=True)
class Plan:
    """What is made of a clip, and where; or the share of one process in it."""

    folder: Path
    classes: ClassTable
    masks: bool
    pictures: bool
    """Overlays one by one."""
    mask_video: bool
    overlay_video: bool
    fps: float = 0
    """Of the videos."""
    pixel_aspect: Fraction = SQUARE
    """Of the overlay's; the other holds numbers, and PyAV cannot say it in Matroska."""
    compares: bool = True
    """Neighbouring frames along the flow."""

    def mask_path(self, name: str) -> Path:
        return self.folder / "masks" / f"{name}.png"

    def picture_path(self, name: str) -> Path:
        return self.folder / "overlay" / f"{name}.jpg"

    @property
    def in_order(self) -> "Plan | None":
        """The share that needs all frames, one after the other: videos, if there are any."""
        wanted = self.mask_video or self.overlay_video
        return replace(self, masks=False, pictures=False, compares=False) if wanted else None

    @property
    def in_any_order(self) -> "Plan":
        """The other share."""
        return replace(self, mask_video=False, overlay_video=False)


@dataclass(frozen=True, eq=False)
class Seen:
    """A frame with what is known of it."""

    index: int
    name: str
    time: float
    """Images have none: 0."""
    pixels: np.ndarray | None = None
    """RGB, or planes that `colours` turn into it. None where it does not decode."""
    mask: np.ndarray | None = None
    """None where an earlier start wrote it."""
    planes: np.ndarray | None = None
    """Of its overlay, if a GPU drew it."""
    colours: YuvToRgb | None = None

    @property
    def rgb(self) -> np.ndarray:
        """The frame; many need not be turned into RGB."""
        assert self.pixels is not None
        return self.pixels if self.colours is None else yuv_to_rgb(sample_planes(self.pixels), self.colours)

    @property
    def shape(self) -> tuple[int, ...]:
        """Height and width of the frame."""
        assert self.pixels is not None
        return frame_size(self.pixels.shape, planes=self.colours is not None)


@dataclass(frozen=True, eq=False)
class Finished:
    """A frame with all that can be made of it without its neighbours."""

    index: int
    time: float
    new: bool
    """It was done by no earlier start."""
    mask: np.ndarray | None = None
    small: Small | None = None
    overlay: Any = None
    """As a frame of a video."""


class ClipFiles:
    """Writes what a plan says; the videos, which begin with the first frame that has a mask, are whole in the end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._overlays: dict[tuple[int, ...], Overlay] = {}
        self._overlay_video: VideoWriter | None = None
        self._mask_video: VideoWriter | None = None
        self._open = ExitStack()
        self._waiting: list[Finished] | None = []
        """Frames that came before there was a mask; None once there was one."""
        self._size = (1, 1)

    def __enter__(self) -> "ClipFiles":
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._open.__exit__(*raised)

    def finish(self, seen: Seen) -> Finished:
        """What can be made of one frame alone, by any thread."""
        plan, pixels, mask, planes = self.plan, seen.pixels, seen.mask, seen.planes
        if pixels is None:
            return Finished(seen.index, seen.time, True)
        if mask is None:
            mask = read_written_mask(plan.mask_path(seen.name))
            if mask is None or mask.shape != seen.shape:  # it was there a moment ago
                raise UserError(f"{plan.mask_path(seen.name)} was changed or removed: start again with --force.")
        elif plan.masks:
            write_mask(plan.mask_path(seen.name), mask, plan.classes)
        if plan.pictures and seen.mask is not None:
            write_picture(plan.picture_path(seen.name), self._overlay(mask.shape)(seen.rgb, mask))
        overlay = None
        if plan.overlay_video:
            planes = to_yuv(self._overlay(mask.shape)(seen.rgb, mask)) if planes is None else planes
            overlay = video_frame(planes, "yuv420p")
        small = Small.of(pixels, mask, seen.colours) if plan.compares else None
        return Finished(seen.index, seen.time, seen.mask is not None, mask, small, overlay)

    def add(self, one: Finished) -> Taken:
        """A frame in its turn; the memory of its overlay is needed until it is taken."""
        if self._waiting is not None:
            self._waiting.append(one)
            if one.mask is None:
                return None
            self._begin(one.mask)
        *waiting, last = self._waiting or [one]
        self._waiting = None
        for each in waiting:
            self._add(each)  # it has no mask, hence no overlay
        return self._add(last)

    def _begin(self, mask: np.ndarray) -> None:
        plan = self.plan
        self._size = mask.shape
        if plan.overlay_video:
            video = video_writer(plan.folder / "overlay.mp4", "libx264", plan.fps, plan.pixel_aspect)
            self._overlay_video = self._open.enter_context(video)
        if plan.mask_video:
            video = video_writer(plan.folder / "masks.mkv", "ffv1", plan.fps)
            self._mask_video = self._open.enter_context(video)

    def _add(self, one: Finished) -> Taken:
        taken = None
        if self._overlay_video is not None and one.overlay is not None:
            taken = self._overlay_video.add(one.overlay, one.time)
        if self._mask_video is not None:
            # A frame without a mask is all ignore, so that the frames' numbers stay those of the original.
            mask = one.mask if one.mask is not None else np.full(self._size, IGNORE, np.uint8)
            self._mask_video.add(video_frame(mask, "gray"), one.time)
        return taken

    def _overlay(self, shape: tuple[int, ...]) -> Overlay:
        if shape not in self._overlays:
            self._overlays[shape] = Overlay(self.plan.classes, shape[1], shape[0])
        return self._overlays[shape]


def with_the_one_before(
    finished: Iterable[Finished], before: Small | None = None
) -> Iterator[tuple[Small | None, Finished]]:
    """Each frame, and the last one before it that has a mask."""
    for one in finished:
        yield before, one
        before = one.small or before


def agreement(before: Small | None, one: Finished) -> Done:
    """How far a new mask agrees with the one before along the flow."""
    if before is None or one.small is None or not one.new:
        return one.index, None
    return one.index, number(flow_agreement(before, one.small))
