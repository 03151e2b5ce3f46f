"""Writers: they make the files of a clip from its predictions."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from suture.data.video import YuvPlanes
from suture.prediction.clip_files import (
    COMPARE_THREADS,
    FINISH_THREADS,
    ClipFiles,
    FinishedFrame,
    OutputPlan,
    PredictedFrame,
    compare,
    with_previous,
)
from suture.prediction.frame_table import count_pixels
from suture.prediction.input_clip import ClipFrame, fill_batch
from suture.prediction.prefetch import FRAMES_TOGETHER, cores, map_ordered

if TYPE_CHECKING:
    from suture.prediction.fast.process_writer import SharedBatch
    from suture.prediction.predictor import PendingBatch


class PredictedBatch(NamedTuple):
    """Consecutive frames of a clip with their predictions."""

    frames: list[ClipFrame]
    pending: "PendingBatch | None" = None
    """None if they cannot be used, or were predicted by an earlier start."""
    memory: "SharedBatch | None" = None
    """Memory that the writer gave for them."""


class WrittenFrame(NamedTuple):
    """A frame whose files are written, with its measurements."""

    frame: ClipFrame
    certainty: Sequence[float] | None = None
    """Confidence and entropy; None if it was not predicted."""
    pixels: np.ndarray | None = None
    """Pixels of each class in its mask."""
    flow_agreement: float | None = None


class Writer(Protocol):
    """Makes the files of clips. Both writers give the same files."""

    def session(self) -> AbstractContextManager[Any]:
        """Enter this block for one clip; if it fails, resources are released at its end."""

    def allocate(self) -> "SharedBatch | None":
        """Return memory for the next batch, if the writer has some of its own; waits until it is free."""

    def write(self, plan: OutputPlan, batches: Iterator[PredictedBatch]) -> Generator[list[WrittenFrame], None, None]:
        """Write the files of a clip, and yield its frames in order as they are written."""


class ThreadedWriter:
    """Writes files by threads of this process: the writer on a CPU, and for short clips.

    Args:
        batch: Frames that arrive together.
    """

    def __init__(self, batch: int = 1) -> None:
        self.together = min(FRAMES_TOGETHER, batch)

    def session(self) -> AbstractContextManager[None]:
        return nullcontext()

    def allocate(self) -> None:
        return None

    def write(self, plan: OutputPlan, batches: Iterator[PredictedBatch]) -> Generator[list[WrittenFrame], None, None]:
        files = ClipFiles(plan)
        places = ((batch, place) for batch in batches for place in range(len(batch.frames)))
        measured: dict[int, WrittenFrame] = {}

        def finish(item: tuple[PredictedBatch, int]) -> FinishedFrame:
            frame, measured[frame.index] = _load(*item)
            return files.finish(frame)

        with (
            files,
            closing(map_ordered(finish, places, min(FINISH_THREADS, cores()), self.together)) as finished,
            closing(map_ordered(_compare, with_previous(finished), COMPARE_THREADS, self.together)) as compared,
        ):
            for one, flow_agreement in compared:
                files.add(one)
                yield [measured.pop(one.index)._replace(flow_agreement=flow_agreement)]


def _compare(pair: tuple[Any, FinishedFrame]) -> tuple[FinishedFrame, float | None]:
    return pair[1], compare(*pair)[1]


def _load(batch: PredictedBatch, place: int) -> tuple[PredictedFrame, WrittenFrame]:
    """Wait for the prediction of one frame and measure it."""
    frame, pixels = batch.frames[place], batch.frames[place].pixels
    if isinstance(pixels, YuvPlanes):
        (pixels,) = fill_batch(np.empty((1, *pixels.shape), np.uint8), [pixels])
    assert pixels is None or isinstance(pixels, np.ndarray)
    loaded = partial(PredictedFrame, frame.index, frame.name, frame.time or 0.0, pixels, colours=frame.colours)
    if batch.pending is None:
        return loaded(), WrittenFrame(frame)
    mask, *certainty = batch.pending[place]
    on_gpu = batch.pending.counts, batch.pending.planes
    counts, planes = (None if values is None else values[place].numpy() for values in on_gpu)
    written = WrittenFrame(frame, certainty, count_pixels(mask) if counts is None else counts)
    return loaded(mask=mask, planes=planes), written
