"""Steps that run side by side: a thread that works ahead, and a pool that keeps the order.

Decoding, the network, drawing and encoding all let go of Python's lock while they work, so threads are enough, and
nothing is copied between them. But to hand an item on takes the lock, which the others wait for: fast steps hand on
several items together.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

from suture.core import workers

T = TypeVar("T")
R = TypeVar("R")
PATIENCE = 0.1
"""Seconds after which a waiting thread looks whether anybody still wants its work."""
TOGETHER = 4
"""Frames that are handed on together, where they come in batches: to hand on each of them would hold up all threads."""


def ahead(items: Iterable[T], depth: int, together: int = 1) -> Generator[T, None, None]:
    """The same items, made by a thread of their own, up to `depth` times `together` of them before they are asked for.

    An exception of the items comes out here; where the taker leaves early, the thread ends too.

    >>> list(ahead(range(5), depth=2))
    [0, 1, 2, 3, 4]
    """
    queue: Queue[tuple[bool, Any]] = Queue(depth)
    left = Event()

    def put(whole: bool, item: Any) -> None:
        while not left.is_set():
            with contextlib.suppress(Full):
                queue.put((whole, item), timeout=PATIENCE)
                return

    def work() -> None:
        error: BaseException | None = None
        try:
            for some in several(items, together):
                put(True, some)
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
                going, item = queue.get(timeout=PATIENCE)
            except Empty:
                continue  # a wait without end would not hear Ctrl-C everywhere
            if not going:
                break
            yield from item
        if item is not None:
            raise item
    finally:
        left.set()
        thread.join()


def in_order(
    function: Callable[[T], R], items: Iterable[T], workers: int, together: int = 1
) -> Generator[R, None, None]:
    """`map` by a pool of threads, each taking so many items `together`: in the order of the items, not far ahead.

    >>> list(in_order(lambda number: number * number, range(5), workers=2))
    [0, 1, 4, 9, 16]
    """
    waiting: deque[Future[list[R]]] = deque()

    def work(some: list[T]) -> list[R]:
        return [function(item) for item in some]

    with ThreadPoolExecutor(workers) as pool:
        try:
            for some in several(items, together):
                waiting.append(pool.submit(work, some))
                while len(waiting) >= 2 * workers or (waiting and waiting[0].done()):
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def several(items: Iterable[T], together: int) -> Generator[list[T], None, None]:
    """Lists of so many items; those that came before an error too."""
    some: list[T] = []
    try:
        for item in items:
            some.append(item)
            if len(some) == together:
                yield some
                some = []
    except Exception:
        if some:
            yield some
        raise
    if some:
        yield some


def cores() -> int:
    """The cores of this process, shared with those that torchrun started beside it."""
    return workers.cores(int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
