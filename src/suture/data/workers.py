"""Processes that work for this one, and end with it; and how many cores there are for them."""

import os
import signal
import threading
import time

import cv2


def cores(sharing: int = 1) -> int:
    """The cores that this process may use: its part, and at least one, where so many processes share them."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, here // sharing)


def start_worker(parent: int) -> None:
    """What a process of a pool or a loader does first; `parent` is the process that made it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends its workers
    cv2.setNumThreads(1)
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()


def _die_with(parent: int) -> None:
    """End this worker when its parent was killed; it would wait for work for ever, holding the parent's locks."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
