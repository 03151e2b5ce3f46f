"""Command line: one file per command. A command parses its options, calls the library and prints the result."""

import signal
import sys
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperCommand

from suture import __version__
from suture.cli import terminal
from suture.cli.adapt_command import adapt
from suture.cli.check_command import check
from suture.cli.compare_command import compare
from suture.cli.doctor_command import doctor
from suture.cli.evaluate_command import evaluate
from suture.cli.export_command import export
from suture.cli.labels_command import labels
from suture.cli.predict_command import predict
from suture.cli.report_command import report
from suture.cli.select_command import select
from suture.cli.serve_command import serve
from suture.cli.status_command import status
from suture.cli.studio_command import studio
from suture.cli.synthetic_command import synthetic
from suture.cli.train_command import train
from suture.core.errors import UserError, describe_os_error, is_full
from suture.core.signals import end, handle_signal
from suture.core.threads import use_passive_openmp_wait
from suture.methods import METHODS

COMMANDS = (
    synthetic,
    check,
    select,
    train,
    adapt,
    evaluate,
    report,
    export,
    predict,
    compare,
    studio,
    serve,
    status,
    doctor,
)
"""All commands, in the order of the help."""

use_passive_openmp_wait()  # before the commands import torch

app = typer.Typer(
    help="Label a few frames, segment every video.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Command(TyperCommand):
    """A command whose help shows no type for flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


for command in COMMANDS:
    methods = f"Methods, for --set method=NAME: {', '.join(METHODS)}." if command is train else None
    app.command(epilog=methods, cls=Command)(command)
    if command is select:
        app.add_typer(labels, name="labels")


def _print_version(value: bool) -> None:
    if value:
        terminal.out.print(f"suture {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors; allowed anywhere.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only results and errors; allowed anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a user's mistake or a failed file access prints one message and exits with 2."""
    arguments = [word for word in sys.argv[1:] if word not in ("--debug", "--quiet")]
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    terminal.err.quiet = "--quiet" in sys.argv
    with handle_signal(signal.SIGTERM, end):
        try:
            app(arguments)
        except (UserError, OSError) as error:
            if "--debug" in sys.argv:
                raise
            terminal.err.quiet = False
            message = str(error)
            if isinstance(error, OSError):
                fix = "make room" if is_full(error) else "check the path, and whether you may read and write there"
                message = f"{describe_os_error(error)}: {fix}, then start the same command again."
            terminal.err.print(Text.assemble(("error: ", "red"), message), soft_wrap=True)
            sys.exit(2)
        except SystemExit as exit:
            if exit.code in (130, 143) and terminal.is_first_process():  # Ctrl-C and SIGTERM
                terminal.print_line(terminal.err, f"Stopped; to go on: {terminal.resume_command()}")
            raise
