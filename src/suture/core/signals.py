"""Signals of which a program hears for a while."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


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


def ended_by(number: int) -> BaseException:
    """What ends a program that a signal asked to end; the exit code is the one that a shell gives."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def end(number: int, frame: object) -> NoReturn:
    """End the program by an exception; asked once is enough."""
    signal.signal(number, signal.SIG_IGN)
    raise ended_by(number)
