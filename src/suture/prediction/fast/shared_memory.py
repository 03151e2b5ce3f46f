"""Memory and messages that two processes share."""

import contextlib
import math
import mmap
import os
import pickle
import socket
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np


class Span(NamedTuple):
    """Location and shape of an array of bytes in shared memory."""

    start: int
    shape: tuple[int, ...]


class SharedMemory:
    """Growing memory in a file without a name, gone with the last process that has it.

    Args:
        file: File descriptor in a process that is given the memory; None creates it.

    >>> memory = SharedMemory()
    >>> start, content = memory.grow(6)
    >>> content[:] = b"abcdef"
    >>> SharedMemory(memory.file)[Span(start, (2, 3))].tolist()
    [[97, 98, 99], [100, 101, 102]]
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = os.memfd_create("suture") if file is None else file
        self._size = 0
        self._lock = Lock()
        self._mapped: mmap.mmap | None = None

    def grow(self, size: int) -> tuple[int, mmap.mmap]:
        """Add bytes; returns their start and a map of them."""
        with self._lock:
            start = self._size
            self._size += math.ceil(size / mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self.file, self._size)
        return start, mmap.mmap(self.file, size, offset=start)

    def __getitem__(self, span: Span) -> np.ndarray:
        size = math.prod(span.shape)
        if self._mapped is None or span.start + size > len(self._mapped):
            self._mapped = mmap.mmap(self.file, 0)
        return np.frombuffer(self._mapped, np.uint8, size, span.start).reshape(span.shape)

    def close(self) -> None:
        """Close the file; arrays in the memory stay readable."""
        os.close(self.file)


class SharedBuffer:
    """An array of bytes in shared memory that takes any shape.

    Args:
        memory: Where it lies; it moves when it has to grow.
        pin: Called with new bytes, so that a GPU can reach them.
        unpin: Called before they are given back.
    """

    def __init__(
        self, memory: SharedMemory, pin: Callable[[np.ndarray], None], unpin: Callable[[np.ndarray], None]
    ) -> None:
        self._memory, self._pin, self._unpin = memory, pin, unpin
        self._start = 0
        self._map: mmap.mmap | None = None
        self._bytes = np.empty(0, np.uint8)
        self.span: Span | None = None
        """Current location; None while it is not used."""

    def shaped(self, shape: Sequence[int]) -> np.ndarray:
        """Return the array in a shape; its content is lost."""
        size = math.prod(shape)
        if size > len(self._bytes):
            self.close()
            start, grown = self._memory.grow(size)
            fresh = np.frombuffer(grown, np.uint8)
            self._pin(fresh)
            self._start, self._map, self._bytes = start, grown, fresh
        self.span = Span(self._start, tuple(shape))
        return self._bytes[:size].reshape(shape)

    @property
    def nbytes(self) -> int:
        return len(self._bytes)

    def close(self) -> None:
        """Give the memory back."""
        if self._map is not None:
            self._unpin(self._bytes)
            self._map.madvise(mmap.MADV_REMOVE)
        self._map, self._bytes = None, np.empty(0, np.uint8)


class MessageSocket:
    """One end of a connection for whole Python objects."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._incoming = end.makefile("rb")

    def send(self, message: Any) -> None:
        """Send a message; OSError if the other end is gone."""
        self._end.sendall(pickle.dumps(message))

    def receive(self) -> Any:
        """Wait for a message; EOFError if the other end is closed or gone."""
        try:
            return pickle.load(self._incoming)
        except (OSError, pickle.UnpicklingError) as error:  # it ended in the middle of a message
            raise EOFError from error

    def close(self) -> None:
        """Close both directions, which the other end notices."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
