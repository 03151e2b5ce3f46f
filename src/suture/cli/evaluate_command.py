"""`suture evaluate`."""

from pathlib import Path
from typing import Annotated

from suture.cli import terminal
from suture.cli.options import COMMAND_LINE, Overrides, existing
from suture.cli.terminal import out, print_line, print_next, print_scores
from suture.cli.train_command import NOTHING_SCORED


def evaluate(run: Annotated[Path, existing("a run folder")], set: Overrides = None) -> None:
    """Score a finished run again, and print its scores."""
    with terminal.waiting():
        from suture.reports.scores_section import scores_table
        from suture.training.train import evaluate_run

    metrics = evaluate_run(run, set or [], terminal.err, origin=COMMAND_LINE)
    if not terminal.is_first_process():
        return
    if metrics:
        print_scores(scores_table([run], [metrics]), [metrics])
    else:
        print_line(out, NOTHING_SCORED)
    print_next("report", run, "--open")
