"""Progress bars and waiting lines for the terminal."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column


class ProgressBar(Progress):
    """The one progress bar of all commands: title, bar, count, a detail such as the loss, and the time left.

    Args:
        console: Where it is drawn; standard error by default.
        show: Draw it at all; a bar that is not drawn still counts.
        keep: Leave the finished bar in the terminal, and draw it where the output is a file too.
        options: Further options of `rich.progress.Progress`.

    Example:
        >>> with ProgressBar(show=False) as bar:
        ...     task = bar.add_task("read masks", total=2)
        ...     bar.update(task, advance=1, detail="40 masks/s")
    """

    def __init__(
        self, console: Console | None = None, *, show: bool = True, keep: bool = False, **options: Any
    ) -> None:
        console = console or Console(stderr=True)
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
            transient=not keep,
            disable=not (show and (keep or console.is_terminal)),
            **options,
        )

    def add_task(self, description: str, *, total: float | None = 0, detail: str = "", **fields: Any) -> TaskID:  # type: ignore[override]
        """Add a line with its total; `detail` is shown behind the count."""
        return super().add_task(description, total=total, detail=detail, **fields)


def waiting(what: str, console: Console) -> AbstractContextManager[Any]:
    """Show a spinner on a terminal while uncounted work runs; print nothing into a log."""
    return console.status(f"{what} …") if console.is_terminal else nullcontext()
