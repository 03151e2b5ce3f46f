"""A prediction as a CUDA graph: recorded once, then replayed as one launch.

A network on one frame is made of hundreds of short kernels, and launching them one by one from Python takes longer than
computing them: what an operating room would wait for.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple
from weakref import WeakMethod

import torch
from torch import Tensor

WARM_UP = 3
"""Eager runs before recording: libraries choose their algorithms and allocate what they keep in these."""
MOST = 4
"""Frames of so many different shapes or ways are recorded; further ones run eagerly."""


class Recording(NamedTuple):
    """A recorded prediction: where its frames are put, and where its outputs appear."""

    graph: torch.cuda.CUDAGraph
    frames: Tensor
    outputs: Sequence[Tensor]


class Recorded:
    """Runs a method (frames and ways to look at them → tensors) as a graph for every shape of frames and every way.

    The outputs stand where the next call puts its own: they have to be copied on the same stream before it. What
    it reads besides the frames has to stay where it is.
    """

    def __init__(self, measure: Callable[..., Sequence[Tensor]]) -> None:
        # Weak: whoever measures holds this, and would be held by it for ever, with memory and processes.
        self._measure = WeakMethod(measure)
        self.recordings: dict[Hashable, Recording] = {}

    def __call__(self, frames: Tensor, *ways: Hashable) -> Sequence[Tensor]:
        key = frames.shape, *ways
        recording = self.recordings.get(key)
        if recording is None:
            if len(self.recordings) == MOST:
                return self.measure(frames, *ways)
            recording = self.recordings[key] = self._record(frames.clone(), *ways)
        recording.frames.copy_(frames)
        recording.graph.replay()
        return recording.outputs

    def measure(self, frames: Tensor, *ways: Hashable) -> Sequence[Tensor]:
        """Without a graph."""
        measure = self._measure()
        assert measure is not None
        return measure(frames, *ways)

    def _record(self, frames: Tensor, *ways: Hashable) -> Recording:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                self.measure(frames, *ways)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        # Thread-local: other threads may meanwhile take memory for the next frames.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = self.measure(frames, *ways)
        return Recording(graph, frames, outputs)
