"""`suture synthetic`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from suture.cli.terminal import out, parse_numbers, print_line, print_next
from suture.core.errors import UserError
from suture.core.text import reason


def synthetic(
    folder: Annotated[Path, typer.Argument(help="Folder to write; must not exist yet.")],
    cases: Annotated[int, typer.Option(min=1, help="Number of operations; some have several videos.")] = 8,
    frames: Annotated[int, typer.Option(min=1, help="Frames per video.")] = 100,
    size: Annotated[str, typer.Option(help="WIDTHxHEIGHT.")] = "256x256",
    fps: Annotated[float, typer.Option(help="Frames per second.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Seed of the scene; each seed gives other video.")] = 0,
    container: Annotated[Literal["mp4", "png"], typer.Option(help="Video files, or folders of frames.")] = "mp4",
) -> None:
    """Generate surgical-looking video with masks, to try everything without data."""
    from pydantic import ValidationError

    from suture.core.workers import cores
    from suture.data.synthetic.scenario import SyntheticSettings
    from suture.data.synthetic.write_synthetic import write_synthetic

    width, height = parse_numbers("--size", size, "256x256")
    try:
        settings = SyntheticSettings(seed=seed, cases=cases, frames=frames, width=width, height=height, fps=fps)
    except ValidationError as error:
        mistakes = "; ".join(": ".join([*map(str, one["loc"]), reason(one)]) for one in error.errors())
        raise UserError(f"These settings make no video: {mistakes}.") from None
    write_synthetic(folder, settings, container=container, workers=cores())
    print_line(out, f"Written: {folder}")
    print_next("check", folder)
