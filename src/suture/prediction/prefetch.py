"""Steps that run in parallel threads: `prefetch` works ahead, `map_ordered` keeps the order.

Decoding, the network, drawing and encoding release Python's lock while they work, so threads are enough, and nothing is
copied between them. Handing an item on takes the lock: fast steps hand on several items together.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from suture.core import workers

T = TypeVar("T")
R = TypeVar("R")
FRAMES_TOGETHER = 4
"""Frames handed to another thread together, if they come in batches."""
_END: Any = object()


def prefetch(items: Iterable[T], depth: int) -> Generator[T, None, None]:
    """Yield the same items, made up to `depth` ahead by a thread of its own.

    An exception of the items is raised here. If the consumer leaves early, the thread ends.

    >>> list(prefetch(range(5), depth=2))
    [0, 1, 2, 3, 4]
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, iterator, _END) for _ in range(depth))
        try:
            while (item := waiting.popleft().result()) is not _END:
                waiting.append(thread.submit(next, iterator, _END))
                yield item
        finally:
            for future in waiting:
                future.cancel()
            if isinstance(items, Generator):  # the thread that opened its resources closes them
                thread.submit(items.close).result()


def map_ordered(
    function: Callable[[T], R], items: Iterable[T], workers: int, together: int = 1
) -> Generator[R, None, None]:
    """Map by a pool of threads, in the order of the items and not far ahead.

    Args:
        function: Applied to each item.
        items: Source, iterated by the calling thread.
        workers: Threads.
        together: Items that one thread takes at once.

    >>> list(map_ordered(lambda number: number * number, range(5), workers=2))
    [0, 1, 4, 9, 16]
    """
    iterator = iter(items)
    waiting: deque[Future[list[R]]] = deque()

    def work(group: list[T]) -> list[R]:
        return [function(item) for item in group]

    with ThreadPoolExecutor(workers) as pool:
        try:
            while group := list(islice(iterator, together)):
                waiting.append(pool.submit(work, group))
                while len(waiting) >= 2 * workers or (waiting and waiting[0].done()):
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def cores() -> int:
    """Cores of this process, shared with the processes that torchrun started beside it."""
    return workers.cores(int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
