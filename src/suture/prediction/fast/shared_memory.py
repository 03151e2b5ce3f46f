"""What two processes share: memory in a file without a name, gone with the last of them, and a line to talk over."""

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
    """Where bytes lie in the memory, and as what array."""

    start: int
    shape: tuple[int, ...]


class Memory:
    """The memory, as each of the processes sees it: the one makes it and lets it grow, the other is given its `file`.

    >>> memory = Memory()
    >>> start, here = memory.grow(6)
    >>> here[:] = b"abcdef"
    >>> Memory(memory.file)[Span(start, (2, 3))].tolist()
    [[97, 98, 99], [100, 101, 102]]
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = os.memfd_create("suture") if file is None else file
        self._size = 0
        self._lock = Lock()
        self._seen: mmap.mmap | None = None

    def grow(self, size: int) -> tuple[int, mmap.mmap]:
        """So many new bytes, and where they begin."""
        with self._lock:
            start = self._size
            self._size += math.ceil(size / mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self.file, self._size)
        return start, mmap.mmap(self.file, size, offset=start)

    def __getitem__(self, span: Span) -> np.ndarray:
        size = math.prod(span.shape)
        if self._seen is None or span.start + size > len(self._seen):
            self._seen = mmap.mmap(self.file, 0)  # all that there is now
        return np.frombuffer(self._seen, np.uint8, size, span.start).reshape(span.shape)

    def close(self) -> None:
        """Let go of it; arrays in it stay readable."""
        os.close(self.file)


class Buffer:
    """An array of bytes in the memory that takes any shape, and moves to where there is room for it.

    What lies under it is told to `pin` and, before it moves, to `unpin`: a GPU wants to know.
    """

    def __init__(self, memory: Memory, pin: Callable[[np.ndarray], None], unpin: Callable[[np.ndarray], None]) -> None:
        self._memory, self._pin, self._unpin = memory, pin, unpin
        self._start = 0
        self._map: mmap.mmap | None = None
        self._bytes = np.empty(0, np.uint8)
        self.span: Span | None = None
        """Where it lies now; None where it has no shape."""

    def shaped(self, shape: Sequence[int]) -> np.ndarray:
        """The array in this shape; what it held is lost."""
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
        """What it has room for."""
        return len(self._bytes)

    def close(self) -> None:
        """Give its memory back."""
        if self._map is not None:
            self._unpin(self._bytes)
            self._map.madvise(mmap.MADV_REMOVE)
        self._map, self._bytes = None, np.empty(0, np.uint8)


class Line:
    """One end of a line between two processes: whole messages, each way in order."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._incoming = end.makefile("rb")

    def say(self, message: Any) -> None:
        """A message; OSError where nobody is at the other end any more."""
        self._end.sendall(pickle.dumps(message))

    def hear(self) -> Any:
        """The next message; EOFError where the other end was hung up, or is gone."""
        try:
            return pickle.load(self._incoming)
        except (OSError, pickle.UnpicklingError) as error:  # it ended in the middle of a message
            raise EOFError from error

    def hang_up(self) -> None:
        """Neither say nor hear anything any more: who is still speaking at the other end notices it."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
