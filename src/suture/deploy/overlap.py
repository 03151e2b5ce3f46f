"""Steps that run side by side: a thread that works ahead, and a pool that keeps the order.

Decoding, the network, drawing and encoding all let go of Python's lock while they work, so threads are enough, and
nothing is copied between them.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_PATIENCE = 0.1
"""Seconds after which a waiting thread looks whether anybody still wants its work."""


def ahead(items: Iterable[T], depth: int) -> Generator[T, None, None]:
    """The same items, made by a thread of their own, up to `depth` of them before they are asked for.

    An exception of the items comes out here; where the taker leaves early, the thread ends too.

    >>> list(ahead(range(5), depth=2))
    [0, 1, 2, 3, 4]
    """
    queue: Queue[tuple[bool, Any]] = Queue(depth)
    left = Event()

    def put(whole: bool, item: Any) -> None:
        while not left.is_set():
            with contextlib.suppress(Full):
                queue.put((whole, item), timeout=_PATIENCE)
                return

    def work() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                put(True, item)
                if left.is_set():
                    break
        except BaseException as raised:
            error = raised
        finally:
            if isinstance(items, Generator):
                items.close()  # what it holds open is closed by the thread that opened it
        put(False, error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            try:
                going, item = queue.get(timeout=_PATIENCE)
            except Empty:
                continue  # a wait without end would not hear Ctrl-C everywhere
            if not going:
                break
            yield item
        if item is not None:
            raise item
    finally:
        left.set()
        thread.join()


def in_order(function: Callable[[T], R], items: Iterable[T], workers: int) -> Generator[R, None, None]:
    """`map` by a pool of threads: results in the order of the items, and only so many items taken ahead.

    >>> list(in_order(lambda number: number * number, range(5), workers=2))
    [0, 1, 4, 9, 16]
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                while len(waiting) >= 2 * workers or (waiting and waiting[0].done()):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def cores() -> int:
    """The cores of this process, shared with those that torchrun started beside it."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, here // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
