"""`suture labels import`."""

from pathlib import Path
from typing import Annotated

import typer

from suture.cli.options import existing
from suture.cli.terminal import err, out, print_line, print_next
from suture.core.text import number

labels = typer.Typer(help="Bring labels back from a labelling tool.", no_args_is_help=True)


@labels.callback()
def _group() -> None:
    """Bring labels back from a labelling tool."""


@labels.command("import")
def import_(
    path: Annotated[Path, existing("the folder of the dataset")],
    exports: Annotated[list[Path], existing("exports of CVAT, Label Studio, COCO, Datumaro or LabelMe")],
    annotator: Annotated[
        str | None, typer.Option(help="Annotator to take where several labelled a frame: address or id.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier import of the same name.")] = False,
) -> None:
    """Check the labels of a tool's exports, and write them into the dataset as masks."""
    from suture.annotate.import_labels import import_labels

    result = import_labels(path, exports, annotator, force)
    for note in result.notes:
        print_line(err, note)
    counts = f"{number(sum(result.counts.values()), 'mask')} of {number(len(result.counts), 'video')}"
    print_line(out, f"{counts} in {', '.join(map(str, result.folders))}")
    print_next("check", path, "--write", "--force")
