"""What a terminal shows of work that is over soon."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def passing_bar(wanted: bool = True) -> Progress:
    """A bar that is gone when the work is done; where the output is no terminal, it leaves not even a blank line."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal))


def waiting(what: str, console: Console) -> AbstractContextManager[Any]:
    """Around what takes seconds and cannot be counted: a line on a terminal, none in a log."""
    return console.status(f"{what} …") if console.is_terminal else nullcontext()
