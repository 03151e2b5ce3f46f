"""`suture select`: choose the frames to label, and write them out for a labelling tool."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import cv2
from rich.progress import Progress

from suture.annotate.choose_frames import (
    candidates,
    choose_frames,
    measure_appearance,
    measure_by_model,
    shots_of_places,
)
from suture.annotate.drafts import Draft, ToolLabels
from suture.annotate.tools import TOOLS
from suture.core.errors import UserError
from suture.core.io import filling, write_text
from suture.core.progress import ProgressBar
from suture.core.workers import cores
from suture.data.dataset import Dataset, Video
from suture.data.datasets.folder import require_outside_dataset
from suture.data.images import read_image
from suture.data.labelling import Labelling, by_budget, frame_name, from_list
from suture.data.shots import shots_of_videos

if TYPE_CHECKING:
    from suture.prediction.predictor import Predictor

LIST_NAME = "frames.txt"
Members = Mapping[str, Sequence[Sequence[int]]]
"""Usable frames of each shot, by video."""
Result = TypeVar("Result")


def select(
    dataset: Dataset,
    out: Path,
    every: int | None = None,
    ratio: float | None = None,
    budget: int | None = None,
    listed: Path | None = None,
    by: str = "shots",
    tool: str | None = None,
    predictor: "Predictor | None" = None,
    force: bool = False,
    progress: bool = True,
) -> Labelling:
    """Write the frames to label as `VIDEO__frame_000120.png`, and their list as `frames.txt`.

    For a tool, the frames lie in `images`, beside the tool's labels, drafts and a README.

    Frames that have a mask are not taken again, so that a second selection fills the gaps of the first. Excluded frames
    are never taken.

    Args:
        dataset: The videos; they need no masks.
        out: A new folder.
        every: Take every n-th frame, and the middle frame of each shot without one.
        ratio: Take this share of all frames, spread as by `budget`.
        budget: Take this many frames, spread over the shots by their lengths, at least one per shot if possible.
        listed: Take the frames that a text file names, with a mask or without.
        by: How a budget or a ratio is spent: `shots` spreads it over time, `appearance` over frames that differ,
            `model` over frames that differ, are uncertain and show rare classes.
        tool: Write files for this labelling tool, a key of `TOOLS`.
        predictor: Model for `by` and for the tool's drafts.
        force: Write into a folder that is not empty.
        progress: Show a progress bar.

    >>> select(load_dataset("videos"), Path("to-label"), budget=100).count  # doctest: +SKIP
    100
    """
    dataset.require_videos()
    dataset.require_clear_masks()
    _validate_choice({"every": every, "ratio": ratio, "budget": budget, "list": listed})
    _validate_folder(dataset, out, force)
    if listed is None and all(len(video.with_mask) == len(video.usable) for video in dataset):
        raise UserError(f"{dataset.root}: every frame is excluded or has a mask, so no frame is left to label.")
    with ProgressBar(show=progress) as bar:
        if listed is not None:
            named = from_list(listed, dataset)
            chosen = Labelling({video.id: sorted(set(named[video.id]) - video.excluded) for video in dataset})
            reason = f"{listed} names no frame that is not excluded: write one VIDEO INDEX per line."
        else:
            task = bar.add_task("find shots", total=sum(len(video.usable) for video in dataset))
            shots = shots_of_videos(
                [video for video in dataset if video.usable], progress=lambda done: bar.advance(task, done)
            )
            if ratio is not None:
                budget = max(1, round(ratio * sum(len(video.usable) for video in dataset)))
            members = {video: [one.members(shot) for shot in range(len(one))] for video, one in shots.items()}
            labelled = Labelling({video.id: video.with_mask for video in dataset})
            if every is not None:
                chosen = _choose_regular(dataset, members, labelled, every)
            elif by == "shots" or budget is None:
                chosen = by_budget(members, budget or 0, labelled)
            else:
                chosen = _choose_by_facts(dataset, members, labelled, budget, predictor if by == "model" else None, bar)
            reason = f"--every {every}: all these frames have a mask already; give a smaller number."
        if not chosen.count:
            raise UserError(reason)
        counts = {video.id: len(chosen[video.id]) for video in dataset}
        try:
            with filling(out, last=LIST_NAME) as folder:  # if the list exists, all its frames exist
                images = folder / "images" if tool else folder
                images.mkdir(exist_ok=True)
                _for_all(dataset, lambda v, done: _write(v, chosen[v.id], images, done), counts, bar, "write frames")
                if tool:
                    drawn = _drafts(dataset, chosen, images, predictor)
                    drafts = bar.track(drawn, chosen.count, description="write drafts")
                    TOOLS[tool].write(folder, drafts, _labels(dataset, predictor))
                    write_text(folder / "README.md", TOOLS[tool].readme.replace("DATASET", str(dataset.root)))
                write_text(folder / LIST_NAME, chosen.to_text())
        except OSError as error:
            raise UserError(f"{out} cannot be written ({error.strerror or error}): choose another folder.") from error
    return chosen


def _validate_choice(options: Mapping[str, Any]) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) != 1:
        names = " and ".join(f"--{name}" for name in given) or "none"
        raise UserError(f"Found {names} of --every, --ratio, --budget and --list: give exactly one.")
    ((name, value),) = given.items()
    most = 1 if name == "ratio" else inf
    if name != "list" and not 0 < value <= most:
        raise UserError(f"--{name} is {value}: expected more than 0{', and at most 1' if name == 'ratio' else ''}.")


def _validate_folder(dataset: Dataset, out: Path, force: bool) -> None:
    if out.resolve().is_relative_to(dataset.root.resolve()):
        raise UserError(f"{out} is inside the dataset and would count as a video: give a folder outside the dataset.")
    require_outside_dataset(out, pictures=True)
    if not force and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not empty: give another folder, or use --force to write into it.")


def _choose_regular(dataset: Dataset, members: Members, labelled: Labelling, every: int) -> Labelling:
    """Choose every n-th frame, and the middle frame of each shot without one."""
    regular = {video.id: _taking_part(video, range(0, len(video), every)) for video in dataset}
    chosen: dict[str, list[int]] = {}
    for video, of_video in members.items():
        for shot in of_video:
            hit = set(shot) & {*regular[video], *labelled[video]}
            chosen.setdefault(video, []).extend(hit - set(labelled[video]) if hit else [shot[len(shot) // 2]])
    return Labelling(chosen)


def _choose_by_facts(
    dataset: Dataset,
    members: Members,
    labelled: Labelling,
    budget: int,
    predictor: "Predictor | None",
    bar: Progress,
) -> Labelling:
    """Choose frames that differ from each other and from the labelled ones, by a model or by their thumbnails."""
    frames = candidates(dataset, budget)
    frames = Labelling({video.id: [*frames[video.id], *labelled[video.id]] for video in dataset})
    task = bar.add_task("compare frames", total=frames.count)

    def done(count: int) -> None:
        bar.advance(task, count)

    measure = partial(measure_by_model, predictor) if predictor else measure_appearance
    chosen = choose_frames(measure(dataset, frames, done), labelled, dict(shots_of_places(members)), budget)
    return Labelling({video.id: [index for name, index in chosen if name == video.id] for video in dataset})


def _taking_part(video: Video, indices: Iterable[int]) -> set[int]:
    """Usable frames for these indices: excluded ones are dropped, ones skipped by `take_every` move to the next."""
    usable = video.usable
    nearest = (bisect_left(usable, index) for index in indices if index not in video.excluded)
    return {usable[place] for place in nearest if place < len(usable)}


def _write(video: Video, indices: Sequence[int], folder: Path, done: Callable[[int], None]) -> None:
    for index in indices:
        path = folder / f"{frame_name(video.id, index)}.png"
        _, data = cv2.imencode(".png", cv2.cvtColor(video.read(index), cv2.COLOR_RGB2BGR))
        path.write_bytes(data.tobytes())
        done(1)


def _drafts(dataset: Dataset, chosen: Labelling, images: Path, predictor: "Predictor | None") -> Iterator[Draft]:
    """Yield the written frames, with masks of the model if there is one."""
    for video, index in chosen:
        name = frame_name(video, index)
        frame = read_image(images / f"{name}.png")
        height, width = frame.shape[:2]
        if predictor is None:
            yield Draft(name, width, height)
        else:
            (prediction,) = predictor.predict(frame, dataset[video].view)
            yield Draft(name, width, height, prediction.mask, round(prediction.entropy, 4))


def _labels(dataset: Dataset, predictor: "Predictor | None") -> ToolLabels:
    """Labels of the model, or without one of the dataset."""
    labels = ToolLabels.of_table(dataset.classes)
    if predictor is None:
        return labels
    names, colors = predictor.classes.names, predictor.classes.colors
    unpainted = None if labels.unpainted is None else dataset.classes.names[labels.unpainted]
    same = names.index(unpainted) if unpainted in names else None
    return ToolLabels.of(names, dict(zip(names, colors, strict=True)), same)


def _for_all(
    dataset: Dataset,
    job: Callable[[Video, Callable[[int], None]], Result],
    frames: Mapping[str, int],
    bar: Progress,
    title: str,
) -> dict[str, Result]:
    """Run a job on all videos in threads, with a bar over their frames."""
    stop = threading.Event()
    task = bar.add_task(title, total=sum(frames.values()))

    def done(count: int) -> None:
        if stop.is_set():
            raise CancelledError
        bar.advance(task, count)

    videos = [video for video in dataset if frames[video.id]]
    with ThreadPoolExecutor(cores()) as pool:
        try:
            return dict(zip((v.id for v in videos), pool.map(lambda video: job(video, done), videos), strict=True))
        except BaseException:  # a broken file or Ctrl-C: the others end at their next frame
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
