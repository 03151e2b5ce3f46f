"""CUDA graphs: record a call of thousands of short kernels once, then replay it as one launch."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

WARM_UP = 3
"""Eager calls before recording, in which libraries choose their algorithms and allocate memory."""


class Recording(NamedTuple):
    """One graph, with the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Any]
    outputs: Sequence[Tensor]
    gradients: list[Tensor | None]


class CudaGraph:
    """Records a function as a CUDA graph for each shape of its inputs, and replays it.

    Launching the kernels of a small batch one by one from Python takes longer than computing them. The results are
    equal to those of the eager call. The function may use only tensors on the device, must not wait for their values,
    and must not read Python numbers that change between calls. Other tensors that it reads must stay alive.

    Args:
        module: For training: the module that holds all state of the step. The backward pass of the first output is
            recorded too, and the parameters get their gradients by `take_gradients`.
        max_shapes: Number of graphs; calls with further shapes are not recorded.

    Example:
        >>> graph = CudaGraph()
        >>> outputs = graph(network_and_mask, frames)  # doctest: +SKIP
    """

    def __init__(self, module: nn.Module | None = None, max_shapes: int = 8) -> None:
        self.module = module
        self.max_shapes = max_shapes
        self.recordings: dict[Hashable, Recording] = {}
        self.pool: Any = None
        self.gradients: list[Tensor | None] = []

    def __call__(
        self, function: Callable[..., Sequence[Tensor]], inputs: Any, *options: Hashable
    ) -> Sequence[Tensor] | None:
        """Replay `function(inputs, *options)`.

        Returns:
            The outputs, detached; the next call overwrites them. None if there are `max_shapes` graphs already: call
            the function itself then.
        """
        leaves, _ = tree_flatten(inputs)
        key = (*((x.shape, x.dtype) if isinstance(x, Tensor) else None for x in leaves), *options)
        recording = self.recordings.get(key)
        if recording is None:
            if len(self.recordings) == self.max_shapes:
                return None
            recording = self.recordings[key] = self._record(function, inputs, options)
        _copy(recording.inputs, leaves)
        recording.graph.replay()
        self.gradients = recording.gradients
        return recording.outputs

    def take_gradients(self) -> None:
        """Give the parameters the gradients of the last call."""
        for parameter, gradient in zip(self._parameters(), self.gradients, strict=True):
            parameter.grad = gradient

    def _record(
        self, function: Callable[..., Sequence[Tensor]], inputs: Any, options: tuple[Hashable, ...]
    ) -> Recording:
        leaves, form = tree_flatten(inputs)
        static = [x.clone() if isinstance(x, Tensor) else x for x in leaves]

        def run() -> Sequence[Tensor]:
            outputs = function(tree_unflatten(static, form), *options)
            if self.module is not None:
                outputs[0].backward()
            return outputs

        generator = torch.cuda.get_rng_state()
        buffers = list(self.module.buffers()) if self.module is not None else []
        before = [buffer.clone() for buffer in buffers]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._drop_gradients()
                run()
        torch.cuda.current_stream().wait_stream(side)
        _copy(buffers, before)
        torch.cuda.set_rng_state(generator)

        self._drop_gradients()
        torch.clear_autocast_cache()  # otherwise the graph reads a cached cast that is never updated
        graph = torch.cuda.CUDAGraph()
        # Thread-local: a global recording would fail when other threads allocate or pin memory.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            outputs = run()
        torch.clear_autocast_cache()
        self.pool = graph.pool()
        gradients = [parameter.grad for parameter in self._parameters()]
        self._drop_gradients()
        return Recording(graph, static, [output.detach() for output in outputs], gradients)

    def _parameters(self) -> Iterable[nn.Parameter]:
        return self.module.parameters() if self.module is not None else ()

    def _drop_gradients(self) -> None:
        for parameter in self._parameters():
            parameter.grad = None


@torch.no_grad()
def _copy(targets: Iterable[Any], sources: Iterable[Any]) -> None:
    for target, source in zip(targets, sources, strict=True):
        if isinstance(target, Tensor):
            target.copy_(source)
