"""`suture train`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suture.cli import terminal
from suture.cli.options import COMMAND_LINE, Overrides, Preset, existing, validate_folder
from suture.cli.terminal import out, print_line, print_next, print_scores

if TYPE_CHECKING:
    from suture.training.config import Config

NOTHING_SCORED = "Nothing was scored: no video that is to be scored has masks."


def train(
    target: Annotated[Path | None, existing("a config file, or a dataset's folder")] = None,
    run: Annotated[
        Path | None,
        typer.Option("-o", "--run", help="Run folder; default: runs/DATASET-METHOD-SEED.", callback=validate_folder),
    ] = None,
    preset: Preset = None,
    set: Overrides = None,
) -> None:
    """Train a method on a dataset: stitch, unless --set method=NAME names another.

    The same command again continues an interrupted run.
    """
    with terminal.waiting():
        from suture.training.config import load_config
        from suture.training.run_folder import default_folder

        config = load_config(target, preset, set or [], origin=COMMAND_LINE)
    train_and_print(config, run or default_folder(config))


def train_and_print(config: "Config", folder: Path) -> None:
    """Train or resume a run; print its scores and its folder."""
    with terminal.waiting():
        from suture.reports.scores_section import scores_table
        from suture.training.train import train as train_run

    metrics = train_run(config, folder, terminal.err)
    if terminal.is_first_process():
        if metrics:
            print_scores(scores_table([folder]), [metrics])
        else:
            print_line(out, NOTHING_SCORED)
        print_line(out, f"Run: {folder}")
        print_next("report", folder, "--open")
