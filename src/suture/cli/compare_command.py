"""`suture compare`."""

from pathlib import Path
from typing import Annotated

import typer

from suture.cli import terminal
from suture.cli.options import existing, validate_folder
from suture.cli.terminal import out
from suture.core.errors import UserError


def compare(
    file: Annotated[
        Path, existing("a comparison file; for tables alone, its results NAME.csv or a folder of finished runs")
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for runs and tables; else runs/NAME.", callback=validate_folder),
    ] = None,
    devices: Annotated[str | None, typer.Option(help="GPU numbers such as 0,1, or cpu; default: all GPUs.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time on each device.")] = 1,
    minutes: Annotated[float | None, typer.Option(help="Start no run that would end later than this.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD|RUN", help="Train only this method's runs, or this run; in the order given."),
    ] = None,
    list: Annotated[bool, typer.Option("--list", help="List the runs and their states, and exit.")] = False,
    tables: Annotated[bool, typer.Option("--tables", help="Write the tables of the finished runs, and exit.")] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Print paired differences to this method (of --only, or the proposed)."),
    ] = None,
    collect: Annotated[
        Path | None,
        typer.Option(help="Folder for NAME.csv and NAME.md, written after each run.", callback=validate_folder),
    ] = None,
) -> None:
    """Train datasets × labellings × methods × seeds, and write the tables. The same command again continues."""
    with terminal.waiting():
        from suture.comparison import compare as comparisons
        from suture.comparison.plan import read_plan

    is_plan = file.is_file() and file.suffix != ".csv"
    if list:
        if not is_plan:
            raise UserError(f"{file} is no comparison file, which --list needs.")
        folder = output or comparisons.default_folder(file)
        out.print(comparisons.list_runs(read_plan(file).only(only or ()), folder).to_terminal())
    elif tables or against or not is_plan:
        source = (output or comparisons.default_folder(file)) if is_plan else file
        comparisons.show_tables(source, None if is_plan else output, out, only or (), against)
    else:
        outcome = comparisons.compare(file, output, devices, jobs, minutes, only or (), collect, terminal.err)
        if outcome.failed or outcome.left:
            raise typer.Exit(1)
