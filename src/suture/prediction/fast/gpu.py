"""Copies to and from a GPU beside its computation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from suture.core.errors import UserError

HOST_REGISTER_PORTABLE = 1
"""CUDA's flag for memory that is pinned for all GPUs of the process."""


class Gpu:
    """A GPU with one stream for uploads and one for downloads, so that copies do not delay the computation."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._up, self._down = torch.cuda.Stream(device), torch.cuda.Stream(device)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute on this GPU in the calling thread."""
        # A new thread uses the first GPU. The search for the best algorithms pays, as all frames are alike.
        with torch.cuda.device(self._device), torch.backends.cudnn.flags(enabled=True, benchmark=True):
            yield

    def memory(self, shape: Sequence[int]) -> Tensor:
        """Allocate pinned bytes, which are copied asynchronously."""
        with torch.cuda.device(self._device):
            return torch.empty(tuple(shape), dtype=torch.uint8, pin_memory=True)

    def pin(self, memory: np.ndarray) -> None:
        """Pin existing memory, such as shared memory."""
        with torch.cuda.device(self._device):
            error = torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, HOST_REGISTER_PORTABLE)
        if int(error):
            message = torch.cuda.cudart().cudaGetErrorString(error)
            raise UserError(f"{memory.nbytes:,} bytes cannot be pinned for the GPU ({message}): lower --batch.")

    def unpin(self, memory: np.ndarray) -> None:
        """Unpin memory once nothing is copied any more."""
        # Only these streams: waiting for the whole device would break a recording of another thread.
        self._up.synchronize()
        self._down.synchronize()
        with torch.cuda.device(self._device):
            torch.cuda.cudart().cudaHostUnregister(memory.ctypes.data)

    def upload(self, pinned: Tensor) -> Tensor:
        """Copy to the GPU; the current stream waits for it."""
        with torch.cuda.stream(self._up):
            uploaded = pinned.to(self._device, non_blocking=True)
        current = torch.cuda.current_stream()
        current.wait_stream(self._up)
        uploaded.record_stream(current)
        return uploaded

    def download(self, results: Sequence[Tensor], into: Sequence[Tensor | None]) -> tuple[list[Tensor], Any]:
        """Copy results from the GPU; they may be overwritten at once.

        Args:
            results: On the GPU.
            into: Pinned memory for each; None allocates it.

        Returns:
            The copies, and the CUDA event after which they are complete.
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
            # Blocking: a waiting thread sleeps, and leaves its core to decoding and encoding.
            ready = torch.cuda.Event(blocking=True)
            ready.record()
        return copies, ready
