"""`suture predict`: masks, overlays and tables of videos and images."""

import atexit
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import cv2
import torch
import torch.distributed as dist
from rich.console import Console

from suture.core.errors import UserError, is_full
from suture.core.io import LOCK, lock_folder
from suture.core.progress import ProgressBar
from suture.core.schemas import PredictionRecord, read_record
from suture.core.text import number
from suture.data.listing import holds_files
from suture.data.video_index import JOURNAL, RECORD
from suture.prediction.clip_job import ClipJob
from suture.prediction.find_clips import find_clips, share_clips
from suture.prediction.prediction_settings import PredictionSettings, validate_output_folder
from suture.prediction.predictor import Predictor

RESULTS = ("masks", "masks.mkv", "overlay", "overlay.mp4", "frames.csv", "frames.parquet", RECORD, JOURNAL)
MAX_SHOWN_PROBLEMS = 5


@dataclass
class PredictionSummary:
    """Outcome of a prediction, over all processes."""

    clips: int = 0
    frames: int = 0
    """Frames that have a mask."""
    skipped: int = 0
    """Clips that were done before."""
    problems: list[str] = field(default_factory=list)

    def __add__(self, other: "PredictionSummary") -> "PredictionSummary":
        return PredictionSummary(
            self.clips + other.clips,
            self.frames + other.frames,
            self.skipped + other.skipped,
            self.problems + other.problems,
        )


def predict(
    predictor: Predictor,
    inputs: Sequence[str | Path],
    out: Path,
    settings: PredictionSettings | None = None,
    *,
    batch: int | None = None,
    force: bool = False,
    console: Console | None = None,
) -> PredictionSummary:
    """Predict the frames of videos, images, folders and globs, with one folder of results per clip.

    The same call again continues: what is done is skipped. Under torchrun the processes share the clips. Frames and
    clips that cannot be used are reported and left out.

    Args:
        predictor: The model.
        inputs: Videos, images, folders and globs.
        out: Folder for the results.
        settings: Files to write.
        batch: Frames per batch; by default 16 on a GPU, 1 on a CPU.
        force: Write over results of another model or other settings.
        console: Where progress is shown; by default standard error.

    Raises:
        UserError: Nothing could be predicted, or the folder holds other files.
    """
    settings = settings or PredictionSettings()
    batch = batch or (16 if predictor.device.type == "cuda" else 1)
    console = console or Console(stderr=True)
    validate_output_folder(out)
    if settings.smooth:
        predictor.require_scores()
    rank, world = _join_processes()
    videos_by = predictor.network.videos_by if settings.videos_by == "trained" else settings.videos_by
    clips = find_clips(inputs, out, videos_by)
    for clip in clips:
        clip.deinterlace = predictor.network.deinterlace
    jobs = [ClipJob(predictor, clip, out / clip.name, settings, batch) for clip in clips]
    share = {clip.name for clip in share_clips(clips, rank, world)}
    own = [job for job in jobs if job.clip.name in share]
    try:
        for job in own:
            _require_same_settings(job, force)
        for job in own if force else ():
            with lock_folder(job.folder):
                _remove_results(job)
        with _single_threaded(predictor.runs_parallel and not settings.smooth):
            summary = _run_jobs(own, console, report=len(clips) > 1)
    except OSError as error:
        raise _write_error(out, error) from error
    summary = sum(_gather(summary), PredictionSummary())
    if summary.problems and not summary.clips and not summary.skipped:
        if len(clips) == 1:
            raise UserError(summary.problems[0])
        raise UserError(f"None of the {len(clips)} inputs can be used, for the reasons above: give others.")
    return summary


@contextmanager
def _single_threaded(network: bool) -> Iterator[None]:
    """Limit OpenCV, and with `network` also PyTorch, to one thread: frames already run in parallel."""
    before = cv2.getNumThreads(), torch.get_num_threads()
    cv2.setNumThreads(1)
    if network:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before[0])
        torch.set_num_threads(before[1])


def _run_jobs(jobs: Sequence[ClipJob], console: Console, *, report: bool) -> PredictionSummary:
    """Run this process's jobs one after the other; with `report`, print why one fails."""
    summary = PredictionSummary()
    for count, job in enumerate(jobs, start=1):
        try:
            _require_same_settings(job, force=False)  # another process may have begun meanwhile
            if job.record.exists():
                problems = read_record(job.record, PredictionRecord)["problems"]
                summary += PredictionSummary(skipped=1, problems=problems)
                had = f"; it had {number(len(problems), 'problem')}" if problems else ""
                _print(console, f"{job.clip.name}: done before, skipped{had}")
                continue
            title = f"{job.clip.name} ({count} of {len(jobs)})" if len(jobs) > 1 else job.clip.name
            with lock_folder(job.folder), _progress(title, len(job.indices), console) as progress:
                started = time.perf_counter()
                result = job.run(progress)
                (job.folder / LOCK).unlink(missing_ok=True)
        except UserError as error:
            summary.problems.append(str(error))
            if report:
                _print(console, f"{job.clip.name}: {error}")
            continue
        except torch.OutOfMemoryError as error:
            raise UserError("The GPU ran out of memory: lower --batch, or predict on smaller frames.") from error
        except OSError as error:
            raise _write_error(job.folder, error) from error
        summary += PredictionSummary(1, result.frames, 0, result.problems)
        rate = (result.frames - result.before) / max(time.perf_counter() - started, 1e-9)
        before = f", {result.before:,} of them done before" if result.before else ""
        frames = number(result.frames, "frame")
        _print(console, f"{job.clip.name}: {frames}{before}, {rate:.1f} fps; view: {result.view}")
        for problem in result.problems[:MAX_SHOWN_PROBLEMS]:
            _print(console, f"  {problem}")
        if len(result.problems) > MAX_SHOWN_PROBLEMS:
            _print(console, f"  … and {len(result.problems) - MAX_SHOWN_PROBLEMS} more, listed in {job.record}")
    return summary


def _write_error(folder: Path, error: OSError) -> UserError:
    fix = "make room" if is_full(error) else "give a folder that you may write to"
    return UserError(f"{folder} cannot be written ({error.strerror or error}): {fix}, and start again to go on.")


def _require_same_settings(job: ClipJob, force: bool) -> None:
    """Raise if a folder holds other files, or without force results of another model or other settings."""
    known = job.record.exists() or job.journal.path.exists()
    if not known and holds_files(job.folder):
        raise UserError(
            f"{job.folder} holds files but no results of a prediction, expected a new or empty folder: rename it, or "
            "give another output folder."
        )
    if force or not known:
        return
    before = read_record(job.record, PredictionRecord)["made_of"] if job.record.exists() else job.journal.made_of()
    if changed := [key for key, value in job.made_of.items() if (before or {}).get(key) != value]:
        raise UserError(
            f"{job.folder} holds results of other settings ({', '.join(changed)}): give another output folder, or "
            "--force to write over them."
        )


def _remove_results(job: ClipJob) -> None:
    for name in RESULTS:
        path = job.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _join_processes() -> tuple[int, int]:
    """Rank of this process among those of torchrun or srun, and their number."""
    environment = os.environ
    if "RANK" not in environment and int(environment.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        return int(environment["SLURM_PROCID"]), int(environment["SLURM_STEP_NUM_TASKS"])
    rank, world = int(environment.get("RANK", 0)), int(environment.get("WORLD_SIZE", 1))
    if world > 1 and not dist.is_initialized():
        # Processes end together, because torchrun ends all of them when one fails.
        dist.init_process_group("gloo", timeout=timedelta(days=30))
        atexit.register(dist.destroy_process_group)
    return rank, world


def _gather(summary: PredictionSummary) -> list[PredictionSummary]:
    """Collect the summaries of the processes that torchrun started."""
    if not dist.is_initialized():
        return [summary]
    summaries: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(summaries, summary)
    return summaries


@contextmanager
def _progress(title: str, total: int, console: Console) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with frames per second."""
    started = time.perf_counter()

    def advance(frames: int) -> None:
        done = bar.tasks[task].completed + frames
        bar.update(task, completed=done, detail=f"{done / max(time.perf_counter() - started, 1e-9):.1f} fps")

    with ProgressBar(console, show=os.environ.get("RANK", "0") == "0") as bar:
        task = bar.add_task(title, total=total)
        yield advance


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
