"""`suture status`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from suture.cli import terminal
from suture.cli.options import Dataset
from suture.core.text import number


def status(
    path: Dataset,
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show the frames, labels and runs of a dataset, and the next step."""
    from suture.training.dataset_status import dataset_status

    state = dataset_status(path, runs)
    if json:
        terminal.out.print_json(data=asdict(state))
        return
    counts = f"{number(state.frames, 'frame')}, {number(state.masks, 'mask')}"
    terminal.print_line(terminal.out, f"{number(state.videos, 'video')}, {counts}")
    for run in state.runs:
        score = "" if run.score is None else f", {run.score_name} on new videos {run.score:.1%}"
        terminal.print_line(terminal.out, f"{run.folder}: {run.method}, {run.state}{score}")
    terminal.print_next(*state.next_step)
