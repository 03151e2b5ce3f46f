"""`suture report`."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from suture.cli import terminal
from suture.cli.options import existing, require_existing
from suture.cli.terminal import out, print_line, print_next, print_scores


def report(
    runs: Annotated[list[Path], existing("one run folder, or several to set side by side")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="HTML file; default: report.html in the run folder, or in the folder that holds several runs.",
        ),
    ] = None,
    videos: Annotated[
        list[Path] | None,
        typer.Option(
            help="Videos without ground truth to show: a file or folder; may be given several times.",
            callback=require_existing("videos to show, a file or folder"),
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures of a paper (PNG, MP4) into this new folder.")
    ] = None,
    open: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    no_frames: Annotated[bool, typer.Option("--no-frames", help="Leave out every picture of a patient.")] = False,
) -> None:
    """Write one HTML page about runs, and print their scores."""
    from suture.reports.report_path import report_path

    report_path(runs, output)  # validates it before slow imports
    if figures is not None:
        from suture.checks.write_pictures import require_free_folder

        require_free_folder(figures)
    with terminal.waiting():
        from suture.reports.report import write_report
        from suture.reports.scores_section import scores_table
        from suture.training.run_folder import Run

    path = write_report(runs, output, frames=not no_frames, console=terminal.err, videos=videos or [], figures=figures)
    table = scores_table(runs)
    if table.row_count:
        print_scores(table, [Run(run).metrics for run in runs])
    print_line(out, f"Report: {path}")
    if figures is not None:
        print_line(out, f"Figures: {figures}")
    if open:
        webbrowser.open(path.resolve().as_uri())
    print_next("predict", runs[0], "VIDEO", "-o", "predictions")
