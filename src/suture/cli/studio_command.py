"""`suture studio`."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from suture.cli.options import existing
from suture.cli.terminal import out, print_line


def studio(
    path: Annotated[Path, existing("a folder of videos, or a dataset")],
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 8765,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
) -> None:
    """Open the studio, a local web page: look at videos, label frames, train, review drafts."""
    from suture.studio.server import serve
    from suture.studio.workspace import Workspace

    workspace = Workspace(path, runs, read_only)

    def announce(address: str) -> None:
        port = urlsplit(address).port
        print_line(out, f"Studio: {address}")
        print_line(out, f"Only this machine can open it. From another one: ssh -L {port}:127.0.0.1:{port} HOST")

    serve(workspace, port, announce)
