"""Signals of which a program hears for a while."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def hearing(number: signal.Signals, handler: Callable[[int, object], None]) -> Iterator[None]:
    """Within, a signal is handled so; other threads than the first cannot listen."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
