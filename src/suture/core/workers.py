"""Processes that work for this one, and end with it; and how many cores there are for them."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import cv2

from suture.core.errors import UserError

LAST_STEP = 30.0
"""Seconds that a loader's process outlives SIGTERM, by which the parent that ends may have asked it to, too."""


def cores(sharing: int = 1) -> int:
    """The cores that this process may use: its part, and at least one, where so many processes share them."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, here // sharing)


@contextmanager
def pool_for(doing: str, workers: int, *work: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes for what this one is doing. What they work on is given to each once: they get it from `given`."""
    # Forked workers need neither a second import of everything nor a guarded main module.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    pool = ProcessPoolExecutor(workers, context, _start_with, (os.getpid(), work))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise UserError(
            f"A process that was {doing} died, probably for lack of memory: free some, then start the same command "
            "again."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_given: tuple[Any, ...] = ()


def given() -> Any:
    """In a process of `pool_for`, what it works on."""
    return _given


def _start_with(parent: int, work: tuple[Any, ...]) -> None:
    global _given
    _given = work
    start_in_pool(parent)


def start_in_pool(parent: int) -> None:
    """What a pool's process does first; `parent` is the process that made it."""
    # What the parent left to be collected stays: to free a video's decoder here waits for ever for its threads, which
    # no fork has.
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cv2.setNumThreads(1)
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()


def start_worker(parent: int) -> None:
    """The same for a loader's process, which outlives SIGTERM for a while.

    Where the whole group is asked to end, the parent finishes its step first, for which it needs its workers.
    """
    start_in_pool(parent)
    signal.signal(signal.SIGTERM, _end_later)


def _end_later(number: int, frame: object) -> None:
    timer = threading.Timer(LAST_STEP, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _die_with(parent: int) -> None:
    """End this worker when its parent was killed; it would wait for work for ever, holding the parent's locks."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
