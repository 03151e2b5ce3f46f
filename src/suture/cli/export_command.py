"""`suture export`."""

from pathlib import Path
from typing import Annotated

import typer

from suture.cli import terminal
from suture.cli.options import existing
from suture.cli.terminal import out, parse_numbers, print_line


def export(
    run: Annotated[Path, existing("the folder of a finished run")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="ONNX file; default: model.onnx in the run folder. A .md name: card only."),
    ] = None,
    frame: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxHEIGHT",
            help="Size of its input frames; default: size of the videos' view, or of training if views differ.",
        ),
    ] = None,
    view: Annotated[
        str, typer.Option(help="Part of --frame that shows the scene: trained (as stated then), none, or x,y,w,h.")
    ] = "trained",
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Any batch and size, without resizing inside.")] = False,
    logits: Annotated[bool, typer.Option("--logits", help="Output the scores of all classes, not the mask.")] = False,
    fp16: Annotated[bool, typer.Option("--fp16", help="Weights and computation in half precision.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over existing files.")] = False,
) -> None:
    """Write a run's model as ONNX, checked against PyTorch, and its model card."""
    from suture.core.io import suffix_of

    size = parse_numbers("--frame", frame, "1920x1080") if frame else None
    rect = parse_numbers("--view", view, "420,0,1080,1080") if view not in ("trained", "none") else None
    output = output or run / "model.onnx"
    if suffix_of(output) == ".md":
        with terminal.waiting():
            from suture.deployment.export import write_card
        write_card(run, output, force=force)
        print_line(out, f"Card: {output}")
        return
    from suture.data.view import View
    from suture.deployment.export_options import validate_export_options

    height_width = (size[1], size[0]) if size else None
    scene = View.parse(rect, "--view") if rect else None
    validate_export_options(output, height_width, scene, dynamic=dynamic, logits=logits)
    with terminal.waiting():
        from suture.deployment.export import export_run
    with terminal.waiting("Exporting, and comparing with PyTorch"):
        done = export_run(
            run,
            output,
            frame=height_width,
            view="trained" if view == "trained" else scene,
            dynamic=dynamic,
            logits=logits,
            half=fp16,
            force=force,
        )
    print_line(out, f"{done.path}: {done.shape}")
    if done.shape.view:
        print_line(out, f"Its input is a whole frame, of which it sees the view {done.shape.view}.")
    elif not dynamic:
        print_line(out, "Its input is a frame that shows the scene alone: see --frame and --view for others.")
    origin = "of the run's videos" if done.real else "that were generated, as the run's data cannot be read here"
    print_line(out, f"Same class as in PyTorch: {done.agreement:.3%} of the pixels of {done.checked} frames {origin}")
    print_line(out, f"Card: {done.card}")
