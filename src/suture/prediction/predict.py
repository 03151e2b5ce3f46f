"""`suture predict`: a model let loose on videos and images, and what it says written down."""

import atexit
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import cv2
import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from suture.core.errors import UserError, is_full
from suture.core.io import LOCK, lock_folder, together_in
from suture.core.schemas import PredictionRecord, read_record
from suture.core.text import listed, number, time_left
from suture.data.labelling import video_of
from suture.data.listing import holds_files
from suture.data.video_index import JOURNAL, RECORD
from suture.prediction.inputs import Clip, find_clips, shared_out
from suture.prediction.options import Settings, validate_output_folder
from suture.prediction.pipeline import Job
from suture.prediction.predictor import Predictor

_RESULTS = ("masks", "masks.mkv", "overlay", "overlay.mp4", "frames.csv", "frames.parquet", RECORD)
_LINES = 5
"""Problems of a clip that are printed; the table has all of them."""
_SOME = 3
"""Videos that a line names of many."""
_MUCH = 2
"""So many times the pixels that a frame has, or the network looks at, are worth a word: they begin to take time."""


@dataclass
class Summary:
    """How a prediction went, over all processes."""

    clips: int = 0
    frames: int = 0
    """Those that have a mask now."""
    skipped: int = 0
    """Clips that were done before."""
    problems: list[str] = field(default_factory=list)

    def __add__(self, other: "Summary") -> "Summary":
        return Summary(
            self.clips + other.clips,
            self.frames + other.frames,
            self.skipped + other.skipped,
            self.problems + other.problems,
        )


def predict(
    predictor: Predictor,
    inputs: Sequence[str | Path],
    out: Path,
    settings: Settings | None = None,
    *,
    batch: int | None = None,
    force: bool = False,
    console: Console | None = None,
) -> Summary:
    """Predict the frames of videos, images, folders and globs into `out`, a folder for each clip.

    Started again, it goes on where it was: what is there already is left out. Under torchrun the processes share the
    clips. A frame or a clip that cannot be used is told, written down and left out; only where nothing at all could be
    predicted this is an error.
    """
    settings = settings or Settings()
    batch = batch or (16 if predictor.device.type == "cuda" else 1)
    console = console or Console(stderr=True)
    validate_output_folder(out)
    rank, world = _meet()
    videos_by = predictor.network.videos_by if settings.videos_by == "trained" else settings.videos_by
    clips = find_clips(inputs, out, videos_by)
    if rank == 0 and (told := _told_by_name(clips, settings.videos_by == "trained") or _told_together(clips)):
        _say(console, told)
    unnamable = [clip.unnamable for clip in clips if clip.unnamable and rank == 0]
    for problem in unnamable:
        _say(console, problem)
    named = [clip for clip in clips if not clip.unnamable]
    jobs = [Job(predictor, clip, out / clip.name, settings, batch) for clip in named]
    mine = {clip.name for clip in shared_out(named, rank, world)}
    own = [job for job in jobs if job.clip.name in mine]
    begins = [job for job in own if force or not job.record.exists()]  # else nothing is written
    others = together_in(out, {**begins[0].made_by, "force": force}) if begins else nullcontext()
    try:
        with others, _one_core_each(predictor.side_by_side and not settings.smooth):
            for job in own if force else jobs:  # by force, another process may be about to write its own anew
                _refuse_to_replace(job, force)
            for job in own if force else ():
                with lock_folder(job.folder):
                    _remove_results(job)
            summary = _run(own, console, tell=len(clips) > 1)
    except OSError as error:
        raise _not_written(out, error) from error
    summary.problems += unnamable
    summary = sum(_gathered(summary), Summary())
    if summary.problems and not summary.clips and not summary.skipped:
        if len(clips) == 1:
            raise UserError(summary.problems[0])
        raise UserError(f"None of the {len(clips)} inputs can be used, for the reasons above: give others.")
    return summary


def _told_by_name(clips: Sequence[Clip], trained: bool) -> str:
    """Which images became which clips, where those of a folder became several; nothing where none did."""
    folders = Counter(clip.images[0].parent for clip in clips if clip.images)
    told = [clip for clip in clips if clip.images and folders[clip.images[0].parent] > 1]
    if not told:
        return ""
    found = [f"{clip.name} ({number(len(clip), 'frame')})" for clip in told]
    return (
        f"Videos are told apart by what stands before the numbers in the names of images{', as in training' * trained}"
        f": {listed(found, _SOME)}; --videos-by folder makes one video of each folder instead."
    )


def _told_together(clips: Sequence[Clip]) -> str:
    """That frames which `suture select` took out of several videos are taken for one; nothing where none are."""
    told = []
    for clip in clips:
        videos = [*dict.fromkeys(video_of(image.name) for image in clip.images)]
        if len(videos) > 1 and all(videos):
            told.append(f"{clip.path} holds frames of {len(videos)} videos ({listed(videos, _SOME)})")
    return f"As names say, {listed(told)}, each taken for one: --videos-by name tells them apart." if told else ""


@contextmanager
def _one_core_each(network: bool) -> Iterator[None]:
    """Let OpenCV, and if asked the network, keep to one core: frames are worked on side by side already."""
    before = cv2.getNumThreads(), torch.get_num_threads()
    cv2.setNumThreads(1)
    if network:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before[0])
        torch.set_num_threads(before[1])


def _run(jobs: Sequence[Job], console: Console, *, tell: bool) -> Summary:
    """This process's jobs, one after the other; why an only input fails need not be told twice."""
    summary = Summary()
    told: set[str] = set()
    for count, job in enumerate(jobs, start=1):
        if job.record.exists():
            problems = read_record(job.record, PredictionRecord)["problems"]
            summary.skipped += 1
            summary.problems += problems
            had = f"; it had {number(len(problems), 'problem')}" if problems else ""
            _say(console, f"{job.clip.name}: done before, skipped{had}")
            continue
        try:
            job.clip.refuse_long_name()
            if (waste := _waste(job)) and waste not in told:
                _say(console, waste)
                told.add(waste)
            title = f"{job.clip.name} ({count} of {len(jobs)})" if len(jobs) > 1 else job.clip.name
            with lock_folder(job.folder), _progress(title, len(job.clip), console) as progress:
                _refuse_to_replace(job, force=False)  # another process may have begun since it was asked
                began = time.perf_counter()
                outcome = job.run(progress)
                (job.folder / LOCK).unlink(missing_ok=True)
        except UserError as error:
            summary.problems.append(str(error))
            if tell:
                _say(console, f"{job.clip.name}: {error}")
            continue
        except torch.OutOfMemoryError as error:
            raise UserError("The GPU ran out of memory: lower --batch, or predict on smaller frames.") from error
        except OSError as error:
            raise _not_written(job.folder, error) from error
        summary.clips += 1
        summary.frames += outcome.frames
        summary.problems += outcome.problems
        rate = (outcome.frames - outcome.before) / max(time.perf_counter() - began, 1e-9)
        before = f", {outcome.before:,} of them done before" if outcome.before else ""
        frames = number(outcome.frames, "frame")
        _say(console, f"{job.clip.name}: {frames}{before}, {rate:.1f} fps; view: {outcome.view}")
        for problem in outcome.problems[:_LINES]:
            _say(console, f"  {problem}")
        if len(outcome.problems) > _LINES:
            _say(console, f"  … and {len(outcome.problems) - _LINES} more, listed in {job.record}")
    return summary


def _not_written(folder: Path, error: OSError) -> UserError:
    mend = "make room" if is_full(error) else "give a folder that you may write to"
    return UserError(f"{folder} cannot be written ({error.strerror or error}): {mend}, and start again to go on.")


def _waste(job: Job) -> str:
    """That frames are enlarged in vain for a file of a fixed size, and the mend; nothing where they are not."""
    network = job.predictor.network
    size = None if network.any_size else job.clip.size
    if (
        size is None
        or not network.takes(*size)
        or math.prod(network.size) < _MUCH * max(math.prod(size), math.prod(network.trained))
    ):
        return ""
    (rows, columns), (height, width) = network.size, size
    view = " with its --view" if network.cuts else ""
    return (
        f"{network.identity['name']} takes frames of {columns}×{rows}: those of {width}×{height} are enlarged, which "
        f"takes time for nothing; export it with --frame {width}x{height}{view}, or with --dynamic."
    )


def _refuse_to_replace(job: Job, force: bool) -> None:
    """Results of another model or other settings are only written over by force, and what is no result never."""
    known = job.record.exists() or job.journal.path.exists()
    if not known and holds_files(job.folder):
        raise UserError(
            f"{job.folder} holds files but no results of a prediction, expected a new or empty folder for those of "
            f"{job.clip.name}: rename it, or give another output folder."
        )
    if force or not known:
        return
    if job.record.exists():
        before = read_record(job.record, PredictionRecord)["made_of"]
    else:
        before = job.journal.made_of()
    if before != job.made_of:
        changed = [
            key for key, value in job.made_of.items() if not isinstance(before, dict) or before.get(key) != value
        ]
        raise UserError(
            f"{job.folder} holds results of other settings ({', '.join(changed)}): give another output folder, or "
            "--force to write over them."
        )


def _remove_results(job: Job) -> None:
    for name in (*_RESULTS, JOURNAL):
        path = job.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _meet() -> tuple[int, int]:
    """This process's number among those of torchrun or srun, and how many they are."""
    said = os.environ
    if "RANK" not in said and int(said.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        return int(said["SLURM_PROCID"]), int(said["SLURM_STEP_NUM_TASKS"])
    rank, world = int(said.get("RANK", 0)), int(said.get("WORLD_SIZE", 1))
    if world > 1 and not dist.is_initialized():
        # torchrun ends all processes when one of them fails, so that they have to end together.
        dist.init_process_group("gloo", timeout=timedelta(days=30))
        atexit.register(dist.destroy_process_group)
    return rank, world


def _gathered(summary: Summary) -> list[Summary]:
    """Those of all processes, where they know each other."""
    if not dist.is_initialized():
        return [summary]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, summary)
    return found


@contextmanager
def _progress(title: str, total: int, console: Console) -> Iterator[Any]:
    """A bar with frames per second and the time left; where nobody watches, a line now and then."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[fps]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        expand=True,
        transient=True,
        disable=not console.is_terminal or os.environ.get("RANK", "0") != "0",
    )
    began = shown = time.perf_counter()
    done = first = 0

    def advance(frames: int) -> None:
        nonlocal done, first, shown
        if not done:
            first = frames - 1 if frames > 1 else 0  # what was done before says nothing of the speed
        done += frames
        now = time.perf_counter()
        rate = (done - first) / max(now - began, 1e-9)
        if not bar.disable:
            bar.update(task, completed=done, fps=f"{rate:.1f} fps")
        elif now - shown > 30 and done < total:
            shown = now
            left = time_left(total - done, done - first, now - began)
            _say(console, f"{title} {done}/{total} {rate:.1f} fps, {left}")

    with bar:
        task = bar.add_task(title, total=total, fps="")
        yield advance


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
