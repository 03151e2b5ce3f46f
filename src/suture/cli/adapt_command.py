"""`suture adapt`."""

from pathlib import Path
from typing import Annotated

import typer

from suture.cli import terminal
from suture.cli.options import COMMAND_LINE, Overrides, existing, validate_folder
from suture.cli.train_command import train_and_print


def adapt(
    run: Annotated[Path, existing("the folder of a finished run")],
    videos: Annotated[list[Path], existing("new videos without labels: files, or folders of videos or frames")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the new run; default: RUN-adapted.", callback=validate_folder),
    ] = None,
    set: Overrides = None,
) -> None:
    """Train a finished run further, with its labels and the frames of new videos. The same command again continues."""
    with terminal.waiting():
        from suture.training.adapt import adapt_config, adapted_folder
        from suture.training.run_folder import Run

        config = adapt_config(Run(run), videos, set or [], COMMAND_LINE)
    train_and_print(config, output or adapted_folder(Run(run)))
