"""A GPU that computes while frames travel to it and results from it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from suture.core.errors import UserError

_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for all that this process has on its GPUs."""


class Gpu:
    """The ways to a GPU and back: each a stream of its own, so that neither holds up what is computed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._up, self._down = torch.cuda.Stream(device), torch.cuda.Stream(device)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within, this thread computes there."""
        # A new thread thinks of the first GPU. The search for the best algorithms pays, as all frames are alike.
        with torch.cuda.device(self._device), torch.backends.cudnn.flags(enabled=True, benchmark=True):
            yield

    def memory(self, shape: Sequence[int]) -> Tensor:
        """Bytes for `upload`: only memory that the system cannot move is copied while the thread goes on."""
        with torch.cuda.device(self._device):
            return torch.empty(tuple(shape), dtype=torch.uint8, pin_memory=True)

    def pin(self, memory: np.ndarray) -> None:
        """The same for memory that is there already, as that which another process shares."""
        with torch.cuda.device(self._device):
            error = torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, _PORTABLE)
        if int(error):
            said = torch.cuda.cudart().cudaGetErrorString(error)
            raise UserError(f"{memory.nbytes:,} bytes cannot be pinned for the GPU ({said}): lower --batch.")

    def unpin(self, memory: np.ndarray) -> None:
        """Let the system move it again, once nothing is copied any more."""
        # Not all that the GPU does: another thread may be recording, which that would end.
        self._up.synchronize()
        self._down.synchronize()
        with torch.cuda.device(self._device):
            torch.cuda.cudart().cudaHostUnregister(memory.ctypes.data)

    def upload(self, pinned: Tensor) -> Tensor:
        """The same on the GPU, for what is computed next."""
        with torch.cuda.stream(self._up):
            there = pinned.to(self._device, non_blocking=True)
        here = torch.cuda.current_stream()
        here.wait_stream(self._up)
        there.record_stream(here)
        return there

    def download(self, results: Sequence[Tensor], into: Sequence[Tensor | None]) -> tuple[list[Tensor], Any]:
        """Copies in memory (pinned, or new), and the event after which they are there.

        The results may be written over at once.
        """
        kept = [result.clone() for result in results]
        self._down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._down):
            copies = [
                torch.empty(one.shape, dtype=one.dtype, pin_memory=True) if memory is None else memory
                for one, memory in zip(kept, into, strict=True)
            ]
            for copy, one in zip(copies, kept, strict=True):
                copy.copy_(one, non_blocking=True)
                one.record_stream(self._down)
            # Who waits sleeps: the cores are for decoding and encoding.
            ready = torch.cuda.Event(blocking=True)
            ready.record()
        return copies, ready
