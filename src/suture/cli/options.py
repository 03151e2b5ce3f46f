"""Arguments and options that several commands share; path checks import nothing slow."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from suture.core.errors import UserError
from suture.training.presets import presets

COMMAND_LINE = "the command line"
"""Origin of a setting, for messages."""


def require_existing(what: str) -> Callable[[Any], Any]:
    """Build an option callback that raises if a path does not exist."""

    def validate(value: Any) -> Any:
        for path in value if isinstance(value, list) else [value]:
            if path is not None and not os.path.exists(path):
                raise UserError(f"{path} does not exist{_nearest_path(str(path))}: expected {what}.")
        return value

    return validate


def _nearest_path(path: str) -> str:
    from suture.data.dataset_file import nearest

    folder, name = os.path.split(path.rstrip("/"))
    return nearest(name, os.listdir(folder or ".")) if os.path.isdir(folder or ".") else ""


def existing(what: str) -> Any:
    """Argument whose paths must exist."""
    return typer.Argument(help=f"{what[0].upper()}{what[1:]}.", callback=require_existing(what))


def validate_folder(value: Any) -> Any:
    """Option callback that raises if an output folder cannot be a folder."""
    from suture.core.io import validate_folder_path

    if value is not None:
        validate_folder_path(value)
    return value


def parse_options(values: list[str] | None) -> dict[str, Any]:
    """Parse `KEY=VALUE` options of a dataset source; values are YAML."""
    from suture.training.config import set_value

    options: dict[str, Any] = {}
    for value in values or []:
        set_value(options, value, COMMAND_LINE)
    return options


Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting (see the configuration reference); may be given several times.",
    ),
]
Source = Annotated[str, typer.Option(help="Reader of the dataset; auto recognises it by its layout.")]
SourceOptions = Annotated[list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the source.")]
Dataset = Annotated[Path, existing("a folder of videos or frames, a video file, or a dataset")]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"Settings to start from: {', '.join(presets())}."),
]
