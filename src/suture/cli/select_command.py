"""`suture select`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from suture.cli.options import Source, SourceOptions, existing, parse_options
from suture.cli.terminal import err, out, print_line, waiting
from suture.core.errors import UserError
from suture.core.text import number


def select(
    path: Annotated[Path, existing("a folder of videos or frames, a video file, a dataset, or a run folder")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the frames.")],
    every: Annotated[int | None, typer.Option(help="Every N-th frame of each video.")] = None,
    ratio: Annotated[float | None, typer.Option(help="Share of all frames, such as 0.05.")] = None,
    budget: Annotated[int | None, typer.Option(help="Number of frames in all.")] = None,
    list: Annotated[Path | None, typer.Option(help="File of frames: VIDEO INDEX, one per line.")] = None,
    by: Annotated[
        Literal["shots", "appearance", "model"] | None,
        typer.Option(
            help="Spend a budget evenly over the shots, on frames that look different, or on frames of which a "
            "model is unsure. Default: shots, or model for a run."
        ),
    ] = None,
    tool: Annotated[
        Literal["cvat", "labelstudio", "coco", "png"] | None,
        typer.Option("--for", help="Also write labels, drafts of a run and a README for this tool."),
    ] = None,
    source: Source = "auto",
    option: SourceOptions = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Choose the frames to label, by --every, --ratio, --budget or --list, and write them out.

    For a run, frames come from its training videos, and --for adds drafts.
    """
    from suture.annotate.open_run import open_run
    from suture.annotate.select import select as select_frames
    from suture.checks.judge import Evidence, unread_masks
    from suture.core.schemas import is_run
    from suture.data.datasets import load_dataset
    from suture.data.datasets.folder import place_of_new_masks
    from suture.data.labelling import from_list

    predictor = None
    if is_run(path):
        with waiting():
            dataset, predictor = open_run(path)
    else:
        dataset = load_dataset(path, source, **parse_options(option))
    by = by or ("model" if predictor else "shots")
    if by == "model" and predictor is None:
        raise UserError("--by model needs a run: give its folder in place of the dataset.")
    chosen = select_frames(dataset, output, every, ratio, budget, list, by, tool, predictor, force=force)
    notes = []
    if list is not None:
        if excluded := from_list(list, dataset).count - chosen.count:
            notes.append(f"{number(excluded, 'frame')} of {list} left out, as excluded")
        if again := sum(len({*chosen[video.id]} & {*video.with_mask}) for video in dataset):
            notes.append(f"{number(again, 'frame')} with a mask already: a new mask must replace it")
    elif masked := sum(len(video.with_mask) for video in dataset):
        notes.append(f"none of the {number(masked, 'frame')} that have a mask")
    if budget is not None and chosen.count < budget:
        notes.append("there are no more")
    for note in dataset.notes:
        print_line(err, note)
    for problem in unread_masks(Evidence(dataset, {}, False)):
        print_line(err, f"{problem.what}; {problem.fix}.")
    counts = f"{number(chosen.count, 'frame')} of {number(len(chosen.frames), 'video')} in {output}"
    print_line(out, "; ".join([counts, *notes]))
    root = dataset.root
    folder = root if root.is_dir() else root.parent
    print_line(out, f"Next: label them; put the masks or the labelling tool's export into {place_of_new_masks(folder)}")
