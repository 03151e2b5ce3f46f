"""`suture serve`."""

from pathlib import Path
from typing import Annotated

import typer

from suture.cli.options import existing
from suture.cli.terminal import out, print_line, waiting


def serve(
    run: Annotated[Path, existing("a run folder")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than 127.0.0.1 is unprotected.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 9090,
) -> None:
    """Serve a run's model over HTTP, as an ML backend of Label Studio: drafts for the frames of its dataset."""
    with waiting():
        from suture.annotate.open_run import open_run
        from suture.studio.prediction_service import prediction_service
        from suture.studio.run_app import run_app

        dataset, predictor = open_run(run)
    run_app(
        prediction_service(dataset, predictor, host),
        port,
        lambda address: print_line(out, f"ML backend for Label Studio: {address}"),
        host,
    )
