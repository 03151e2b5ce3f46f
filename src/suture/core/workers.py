"""Worker processes that end with their parent, and the number of cores for them."""

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

TERM_GRACE_S = 30.0
"""Time (s) that a data loader process outlives SIGTERM, so that its parent can finish a step."""


def cores(sharing: int = 1) -> int:
    """Number of cores that this process may use, divided by the processes that share them; at least 1."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, here // sharing)


@contextmanager
def pool_for(doing: str, workers: int, *work: Any) -> Iterator[ProcessPoolExecutor]:
    """Pool of forked processes.

    Args:
        doing: Name of the work, for the message when a process dies.
        workers: Number of processes.
        work: Passed to each process once; read there by `given()`.
    """
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
    """Arguments of `pool_for`, in one of its processes."""
    return _given


def _start_with(parent: int, work: tuple[Any, ...]) -> None:
    global _given
    _given = work
    start_in_pool(parent)


def start_in_pool(parent: int) -> None:
    """Set up a worker process: signals, one OpenCV thread, and an end together with its parent."""
    # Objects of the parent must not be collected here: freeing a video decoder would wait for threads that a fork
    # does not have.
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cv2.setNumThreads(1)
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()


def start_worker(parent: int) -> None:
    """Set up a data loader process, which outlives SIGTERM by `TERM_GRACE_S`.

    A signal to the whole process group would otherwise end it before the parent has finished its step.
    """
    start_in_pool(parent)
    signal.signal(signal.SIGTERM, _end_later)


def _end_later(number: int, frame: object) -> None:
    timer = threading.Timer(TERM_GRACE_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _die_with(parent: int) -> None:
    """End this process when its parent was killed; otherwise it would hold the parent's locks forever."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
