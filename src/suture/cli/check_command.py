"""`suture check`."""

from pathlib import Path
from typing import Annotated

import typer

from suture.cli import terminal
from suture.cli.options import Dataset, Source, SourceOptions, parse_options
from suture.cli.terminal import print_line


def check(
    path: Dataset,
    source: Source = "auto",
    option: SourceOptions = None,
    quick: Annotated[bool, typer.Option("--quick", help="Read a few frames only, within seconds.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Draft dataset.yaml; every guess is marked.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over an existing dataset.yaml; its settings are kept.")
    ] = False,
    pictures: Annotated[Path | None, typer.Option(help="Draw views, masks and shots into this folder.")] = None,
) -> None:
    """Validate a dataset: show its contents, and what would ruin a training.

    Exit code 2 if a finding is fatal. With --write, open questions of the draft do not count.
    """
    from suture.checks.check import check as check_dataset
    from suture.checks.check_report import CheckReport
    from suture.checks.draft import write_draft
    from suture.checks.problems import OPEN_QUESTION
    from suture.core.progress import ProgressBar
    from suture.data.dataset_file import FILE_NAME
    from suture.data.datasets import load_dataset

    options = parse_options(option)  # before anything is drafted
    if pictures is not None:
        from suture.checks.write_pictures import require_free_folder, write_pictures

        require_free_folder(pictures)  # before frames are read
    if write:
        kept = " Its former settings are kept, its comments are not." if (path / FILE_NAME).exists() else ""
        drafted = write_draft(path, force=force)
        print_line(terminal.err, f"Drafted {drafted}: read it, answer its questions, then check again.{kept}")
    dataset = load_dataset(path, source, **options)

    def show(sampled: CheckReport) -> None:
        sampled.print(terminal.err)

    report = check_dataset(dataset, full=not quick, progress=not json, on_quick=None if json or quick else show)
    if json:
        terminal.out.print_json(data=report.to_json())
    else:
        report.print(terminal.out)
    if pictures is not None:
        with ProgressBar() as bar:
            task = bar.add_task("Drawing views and shots", total=len(dataset.videos))
            drawn = write_pictures(dataset, pictures, progress=lambda videos: bar.advance(task, videos))
        print_line(terminal.err, f"{len(drawn)} pictures in {pictures}")
    fatal = {problem.code for problem in report.problems if problem.severity == "fatal"}
    if fatal - ({OPEN_QUESTION} if write else set()):
        raise typer.Exit(2)
    if json:
        return
    if fatal:
        terminal.print_next("check", path)
    elif any(video.with_mask for video in dataset):
        terminal.print_next("train", path)
    else:
        terminal.print_next("select", path, "--budget", 20, "-o", "frames")
