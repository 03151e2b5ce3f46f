"""Choose the frames that a surgeon should label, and write them out for a labelling tool."""

import os
import shutil
import threading
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import cv2
from rich.progress import Progress

from suture.core.errors import UserError
from suture.core.io import write_text
from suture.core.progress import ProgressBar
from suture.core.workers import cores
from suture.data.dataset import Dataset, Video
from suture.data.datasets.folder import require_outside_dataset
from suture.data.labelling import Labelling, by_budget, frame_name, from_list
from suture.data.shots import Shots, find_shots

LIST_NAME = "frames.txt"
_Result = TypeVar("_Result")


def select(
    dataset: Dataset,
    out: Path,
    every: int | None = None,
    ratio: float | None = None,
    budget: int | None = None,
    listed: Path | None = None,
    force: bool = False,
    progress: bool = True,
) -> Labelling:
    """Write the frames to label as `VIDEO__frame_000120.png`, and their list as `frames.txt`; no masks are needed.

    `every` takes equidistant frames, and the middle of each shot that they miss. `budget` takes that many, `ratio`
    that share of all frames, spread over the shots by their lengths: one of each shot where that is enough. Frames
    that have a mask are not taken again: a second selection fills the gaps of the first. `listed` takes the frames that
    a text file names, with a mask or without. Excluded frames are never taken. Into a folder that holds something, only
    `force` writes.

    >>> select(load_dataset("videos"), Path("to-label"), budget=100).count  # doctest: +SKIP
    100
    """
    dataset.require_videos()
    dataset.require_clear_masks()
    choice = {"every": every, "ratio": ratio, "budget": budget}
    given = [name for name, value in [*choice.items(), ("list", listed)] if value is not None]
    if len(given) != 1:
        found = " and ".join(f"--{name}" for name in given) or "none"
        raise UserError(f"Found {found} of --every, --ratio, --budget and --list: give exactly one.")
    if any(value is not None and value <= 0 for value in choice.values()) or (ratio is not None and not ratio <= 1):
        most = ", and at most 1" if ratio is not None else ""
        raise UserError(f"--{given[0]} is {choice[given[0]]}: expected more than 0{most}.")
    if out.resolve().is_relative_to(dataset.root.resolve()):
        raise UserError(f"{out} lies in the dataset and would count as one of its videos: give a folder outside of it.")
    require_outside_dataset(out, pictures=True)
    if not force and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already and not empty: give another folder, or --force to write into it.")
    if listed is None and all(len(video.with_mask) == len(video.usable) for video in dataset):
        raise UserError(f"{dataset.root}: every frame is excluded or has a mask, so there is none to label.")
    with ProgressBar(show=progress) as bar:
        if listed is not None:
            named = from_list(listed, dataset)
            chosen = Labelling({video.id: sorted(set(named[video.id]) - video.excluded) for video in dataset})
            mend = f"{listed} names no frame that is not excluded: write one VIDEO INDEX per line."
        else:
            lengths = {video.id: len(video.usable) for video in dataset}
            shots = _for_all(dataset, lambda video, done: find_shots(video, progress=done), lengths, bar, "find shots")
            chosen = _choose(dataset, shots, every, ratio, budget)
            mend = f"--every {every}: all these frames have a mask already; give a smaller number."
        if not chosen.count:
            raise UserError(mend)
        with _filling(out) as folder:
            counts = {video.id: len(chosen[video.id]) for video in dataset}
            _for_all(dataset, lambda v, done: _write(v, chosen[v.id], folder, done), counts, bar, "write frames")
            write_text(folder / LIST_NAME, chosen.to_text())
    return chosen


def _choose(
    dataset: Dataset, shots: dict[str, Shots], every: int | None, ratio: float | None, budget: int | None
) -> Labelling:
    members = {video: [found.members(shot) for shot in range(len(found))] for video, found in shots.items()}
    labelled = Labelling({video.id: video.with_mask for video in dataset})
    if every is None:
        frames = sum(len(video.usable) for video in dataset)
        return by_budget(members, budget if budget is not None else max(1, round((ratio or 0) * frames)), labelled)
    regular = {video.id: _taking_part(video, range(0, len(video), every)) for video in dataset}
    chosen: dict[str, list[int]] = {}
    for video, of_video in members.items():
        for shot in of_video:
            hit = set(shot) & {*regular[video], *labelled[video]}
            chosen.setdefault(video, []).extend(hit - set(labelled[video]) if hit else [shot[len(shot) // 2]])
    return Labelling(chosen)


def _taking_part(video: Video, indices: Iterable[int]) -> set[int]:
    """These frames without the excluded ones; for one that `take_every` leaves out, the next that takes part."""
    usable = video.usable
    nearest = (bisect_left(usable, index) for index in indices if index not in video.excluded)
    return {usable[place] for place in nearest if place < len(usable)}


def _write(video: Video, indices: Sequence[int], folder: Path, done: Callable[[int], None]) -> None:
    for index in indices:
        path = folder / f"{frame_name(video.id, index)}.png"
        _, data = cv2.imencode(".png", cv2.cvtColor(video.read(index), cv2.COLOR_RGB2BGR))
        path.write_bytes(data.tobytes())
        done(1)


@contextmanager
def _filling(out: Path) -> Iterator[Path]:
    """Give a new folder beside `out`; when the block succeeds, it becomes `out` or its files go into it."""
    temporary = out.absolute().with_name(f".{out.absolute().name}.{uuid.uuid4().hex[:12]}")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if not out.exists():
            os.replace(temporary, out)
        else:
            # The list goes last: where it is, all that it names is there.
            for file in sorted(temporary.iterdir(), key=lambda file: file.name == LIST_NAME):
                os.replace(file, out / file.name)
    except OSError as error:
        raise UserError(
            f"{out} cannot be written ({error.strerror or error}): choose a folder with room that you may write to."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _for_all(
    dataset: Dataset,
    job: Callable[[Video, Callable[[int], None]], _Result],
    frames: Mapping[str, int],
    bar: Progress,
    title: str,
) -> dict[str, _Result]:
    """Do a job on all videos at once, with a bar over their frames; threads will do, since decoders let others run."""
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
