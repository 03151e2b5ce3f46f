"""A prediction as a CUDA graph: recorded once, then replayed as one launch.

A network on one frame is made of hundreds of short kernels, and launching them one by one from Python takes longer than
computing them: what an operating room would wait for.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

WARM_UP = 3
"""Eager runs before recording: libraries choose their algorithms and allocate what they keep in these."""
MOST = 4
"""Frames of so many different shapes are recorded; further ones run eagerly."""

Size = tuple[int, int]
Measure = Callable[[Tensor, Tensor, Size], tuple[Tensor, Tensor]]


class Recording(NamedTuple):
    """A recorded prediction: where its inputs are put, and where its outputs appear."""

    graph: torch.cuda.CUDAGraph
    frames: Tensor
    inside: Tensor
    outputs: tuple[Tensor, Tensor]


class Recorded:
    """Runs `measure` (frames, inside, seen → ids, certainty) as a graph for every shape of frames.

    The outputs stand where the next call puts its own: they have to be copied on the same stream before it.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.recordings: dict[tuple[torch.Size, Size], Recording] = {}

    def __call__(self, frames: Tensor, inside: Tensor, seen: Size) -> tuple[Tensor, Tensor]:
        key = frames.shape, seen
        recording = self.recordings.get(key)
        if recording is None:
            if len(self.recordings) == MOST:
                return self.measure(frames, inside, seen)
            recording = self.recordings[key] = self._record(frames.clone(), inside.clone(), seen)
        recording.frames.copy_(frames)
        recording.inside.copy_(inside)
        recording.graph.replay()
        return recording.outputs

    def _record(self, frames: Tensor, inside: Tensor, seen: Size) -> Recording:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                self.measure(frames, inside, seen)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        # Thread-local: other threads may meanwhile take memory for the next frames.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = self.measure(frames, inside, seen)
        return Recording(graph, frames, inside, outputs)
