"""`suture compare`."""

from pathlib import Path
from typing import Annotated

import typer

from suture.cli import terminal
from suture.cli.options import existing, validate_folder
from suture.cli.terminal import out, print_line
from suture.core.errors import UserError
from suture.core.text import listed, number


def compare(
    file: Annotated[Path, existing("a comparison file; or a folder of finished runs, to write its tables")],
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
    collect: Annotated[
        Path | None,
        typer.Option(help="Copy the small files of each finished run into this folder.", callback=validate_folder),
    ] = None,
) -> None:
    """Train datasets × labellings × methods × seeds, and write the tables. The same command again continues."""
    if list and file.is_dir():
        raise UserError(f"{file} is a folder, expected a comparison file for --list: give it, with -o {file}.")
    only_tables = tables or file.is_dir()
    if only and not list and only_tables:
        raise UserError(f"--only is {', '.join(only)}, but tables are of all methods: leave it out.")
    if list or only_tables:
        given = {"--devices": devices is not None, "--jobs": jobs > 1, "--minutes": minutes is not None}
        if list:
            given |= {"--tables": tables, "--collect": collect is not None}
        if unused := [option for option, is_given in given.items() if is_given]:
            print_line(terminal.err, f"No effect with {'--list' if list else 'tables alone'}: {listed(unused)}.")
    with terminal.waiting():
        from suture.comparison import compare as comparisons
        from suture.comparison.collect import collect as collect_runs
        from suture.comparison.plan import read_plan

    folder = file if file.is_dir() else output or comparisons.default_folder(file)
    if list:
        out.print(comparisons.listing(read_plan(file).only(only or ()), folder))
        return
    outcome = None
    if not only_tables:
        outcome = comparisons.compare(file, output, devices, jobs, minutes, only or (), collect, terminal.err)
    if collect is not None:  # before the tables, which can be made again
        copied = collect_runs(folder, collect)
        print_line(out, f"{number(len(copied), 'run')} collected in {collect}")
    if only_tables:
        comparisons.show_tables(folder, output if file.is_dir() else None, out)
    if outcome is not None and (outcome.failed or outcome.left):
        raise typer.Exit(1)
