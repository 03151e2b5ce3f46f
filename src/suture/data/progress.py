"""The bar of work that is over soon."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def passing_bar(wanted: bool = True) -> Progress:
    """A bar that is gone when the work is done; where the output is no terminal, it leaves not even a blank line."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal))
