"""Signal handlers for a block of code, and exits with the shell's exit codes."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def handle_signal(number: signal.Signals, handler: Callable[[int, object], None]) -> Iterator[None]:
    """Handle a signal by `handler` within the block; do nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def ended_by(number: int) -> BaseException:
    """Exception that ends the program after a signal, with the exit code 128 + number."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def end(number: int, frame: object) -> NoReturn:
    """Signal handler that ends the program by an exception and ignores further signals."""
    signal.signal(number, signal.SIG_IGN)
    raise ended_by(number)
