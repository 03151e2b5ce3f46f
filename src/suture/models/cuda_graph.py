"""A training step as a CUDA graph: recorded once, then replayed as one launch.

A step of a small batch is made of thousands of short kernels, and launching them one by one from Python takes longer
than computing them. The graph holds the forward and the backward pass: same kernels, same order, same numbers. What it
asks of a stage's loss: tensors on the device only, no waiting for their values, and no Python number that changes from
step to step (schedules read `Stage.clock`).
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

WARM_UP = 3
"""Eager steps before recording: libraries choose their algorithms and allocate what they keep in these."""
MOST = 8
"""Batches of so many different shapes are recorded; further ones run eagerly."""

Shapes = tuple[tuple[torch.Size, torch.dtype] | None, ...]
Step = Callable[[Any], tuple[Tensor, ...]]


class Recording(NamedTuple):
    """A recorded step: where its inputs are put, and where its outputs and gradients appear."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Any]
    outputs: tuple[Tensor, ...]
    gradients: list[Tensor | None]


class CapturedStep:
    """Runs `step`, whose first output is the loss, with its backward pass.

    `module` holds all the state that the step reads and writes: parameters get their gradients by `take_gradients`
    after a call, buffers change as they would eagerly.
    """

    def __init__(self, module: nn.Module, step: Step) -> None:
        self.module = module
        self.step = step
        self.recordings: dict[Shapes, Recording] = {}
        self.pool: Any = None
        self.gradients: list[Tensor | None] = []

    def __call__(self, batch: Any) -> tuple[Tensor, ...] | None:
        """The step's outputs on a batch, detached; None where it has to run eagerly: a batch of yet another shape."""
        leaves, _ = tree_flatten(batch)
        shapes: Shapes = tuple((x.shape, x.dtype) if isinstance(x, Tensor) else None for x in leaves)
        recording = self.recordings.get(shapes)
        if recording is None:
            if len(self.recordings) == MOST:
                return None
            recording = self.recordings[shapes] = self._record(batch)
        _copy(recording.inputs, leaves)
        recording.graph.replay()
        self.gradients = recording.gradients
        return recording.outputs

    def take_gradients(self) -> None:
        """Give the parameters the gradients of the last call."""
        for parameter, gradient in zip(self.module.parameters(), self.gradients, strict=True):
            parameter.grad = gradient

    def _record(self, batch: Any) -> Recording:
        leaves, form = tree_flatten(batch)
        inputs = [x.clone() if isinstance(x, Tensor) else x for x in leaves]
        static = tree_unflatten(inputs, form)
        generator = torch.cuda.get_rng_state()
        before = [buffer.clone() for buffer in self.module.buffers()]
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                self._forget_gradients()
                self.step(static)[0].backward()
        torch.cuda.current_stream().wait_stream(beside)
        _copy(self.module.buffers(), before)
        torch.cuda.set_rng_state(generator)

        self._forget_gradients()
        torch.clear_autocast_cache()  # a cast from before would be read by the graph and never be made again
        graph = torch.cuda.CUDAGraph()
        # Of this thread only: the loader's goes on pinning memory meanwhile, which a recording of all would refuse.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            outputs = self.step(static)
            outputs[0].backward()
        torch.clear_autocast_cache()
        self.pool = graph.pool()
        gradients = [parameter.grad for parameter in self.module.parameters()]
        self._forget_gradients()
        return Recording(graph, inputs, tuple(x.detach() for x in outputs), gradients)

    def _forget_gradients(self) -> None:
        for parameter in self.module.parameters():
            parameter.grad = None


@torch.no_grad()
def _copy(targets: Iterable[Any], sources: Iterable[Any]) -> None:
    for target, source in zip(targets, sources, strict=True):
        if isinstance(target, Tensor):
            target.copy_(source)
