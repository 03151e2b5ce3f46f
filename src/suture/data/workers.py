"""Processes that work for this one, and end with it; and how many cores there are for them."""

import os
import signal
import threading
import time

import cv2


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
