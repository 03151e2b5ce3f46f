"""`suture predict`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from suture.cli import terminal
from suture.cli.options import existing
from suture.cli.terminal import out, print_line, print_next
from suture.core.errors import UserError
from suture.core.text import number


def predict(
    model: Annotated[Path, existing("a run folder, a model.safetensors or an ONNX file")],
    inputs: Annotated[list[str], typer.Argument(help="Videos, images, folders or globs.", metavar="INPUT")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results, with one folder per input.")],
    masks: Annotated[
        Literal["png", "video", "none"], typer.Option(help="A palette PNG per frame, or one lossless video.")
    ] = "png",
    no_overlay: Annotated[bool, typer.Option("--no-overlay", help="Write no overlay video.")] = False,
    opacity: Annotated[float, typer.Option(help="Share of a class's colour in the overlay, 0 to 1.")] = 0.4,
    outline: Annotated[int | None, typer.Option(help="Pixels of the outlines; 0 is none.")] = None,
    side_by_side: Annotated[bool, typer.Option("--side-by-side", help="Show the frame beside its overlay.")] = False,
    start: Annotated[float, typer.Option(help="Second of the videos at which to begin.")] = 0.0,
    end: Annotated[float | None, typer.Option(help="Second of the videos at which to end.")] = None,
    every: Annotated[int, typer.Option(help="Predict every n-th frame.")] = 1,
    table: Annotated[
        Literal["csv", "parquet", "none"], typer.Option(help="Table of areas, confidence and flicker per frame.")
    ] = "csv",
    view: Annotated[
        str, typer.Option(help="Part that shows the scene: trained, auto (finds black borders), none, or x,y,w,h.")
    ] = "trained",
    videos_by: Annotated[
        Literal["trained", "folder", "name"],
        typer.Option(help="Group images into videos: as trained, by folder, or by the name before their number."),
    ] = "trained",
    smooth: Annotated[float, typer.Option(help="Weight of the previous frame where nothing moves, such as 0.7.")] = 0.0,
    flip: Annotated[bool, typer.Option("--flip", help="Average with the mirrored frame.")] = False,
    scales: Annotated[str, typer.Option(help="Average over these sizes of the frame, such as 0.75,1,1.25.")] = "1",
    window: Annotated[
        bool, typer.Option("--window", help="Predict large frames in overlapping windows, not shrunk.")
    ] = False,
    batch: Annotated[int | None, typer.Option(min=1, help="Frames per batch; else 16 on a GPU, 1 on a CPU.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    force: Annotated[
        bool, typer.Option("--force", help="Write over results of another model or other settings.")
    ] = False,
) -> None:
    """Segment videos and images. The same command again continues; exit code 1 if frames had to be left out."""
    from suture.core.settings import validate_scales
    from suture.data.overlay import OverlayStyle
    from suture.prediction.find_clips import expand_input
    from suture.prediction.prediction_settings import PredictionSettings, parse_view, validate_output_folder

    for path in inputs:
        expand_input(path)  # raises if it does not exist
    try:
        sizes = [float(scale) for scale in scales.split(",")]
    except ValueError:
        raise UserError(f"--scales is {scales}, expected numbers such as 0.75,1,1.25.") from None
    validate_scales(sizes)
    style = OverlayStyle(opacity, outline, side_by_side)
    settings = PredictionSettings(
        masks, not no_overlay, table, parse_view(view), smooth, videos_by, style, start, end, every
    )
    validate_output_folder(output)
    with terminal.waiting():
        from suture.prediction.predict import predict as predict_inputs
        from suture.prediction.predictor import Predictor

    predictor = Predictor(model, device, flip=flip, scales=sizes, window=window)
    summary = predict_inputs(predictor, inputs, output, settings, batch=batch, force=force, console=terminal.err)
    if terminal.is_first_process():
        if summary.skipped and not summary.clips and not summary.problems:
            print_line(out, f"Nothing left to predict: {number(summary.skipped, 'input')} done before ({output})")
        else:
            parts = [f"{number(summary.frames, 'frame')} of {number(summary.clips, 'input')}"]
            parts += [f"{number(summary.skipped, 'input')} done before"] if summary.skipped else []
            parts += [number(len(summary.problems), "problem")] if summary.problems else []
            print_line(out, f"Predicted: {output} ({', '.join(parts)})")
        if model.is_dir():
            print_next("select", model, "--budget", 20, "-o", "frames", "--for", "png")
    if summary.problems:
        raise typer.Exit(1)
