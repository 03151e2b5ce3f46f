"""Frames, labels and runs of a dataset, and the next step with them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suture.core.schemas import is_run
from suture.data.datasets import load_dataset
from suture.training.run_folder import Run


@dataclass(frozen=True)
class RunStatus:
    """State and score of one run."""

    folder: str
    method: str
    state: str
    score_name: str = ""
    score: float | None = None


@dataclass(frozen=True)
class DatasetStatus:
    """Counts of a dataset, its runs, and the arguments of the next command."""

    videos: int
    frames: int
    masks: int
    runs: list[RunStatus]
    next_step: list[str]


def dataset_status(path: Path, runs: Path) -> DatasetStatus:
    """Count the frames and labels of a dataset, and find its runs in a folder."""
    dataset = load_dataset(path)
    masks = sum(len(video.with_mask) for video in dataset)
    found = list(_runs_of(path, runs))
    unfinished = next((run for run in found if run.state != "finished"), None)
    if unfinished:
        step = ["train", f"{unfinished.folder}/config.yaml", "-o", unfinished.folder]
    elif found:
        step = ["report", *(run.folder for run in found), "--open"]
    else:
        step = ["train", str(path)] if masks else ["select", str(path), "--budget", "20", "-o", "frames"]
    frames = sum(len(video.usable) for video in dataset)
    return DatasetStatus(len(dataset.videos), frames, masks, found, step)


def _runs_of(path: Path, runs: Path) -> Iterator[RunStatus]:
    """Yield the runs in a folder that learnt from a dataset."""
    for folder in sorted(one for one in runs.glob("*") if is_run(one)):
        run = Run(folder)
        if (folder / run.config_record["data"]["root"]).resolve() != path.resolve():
            continue
        done = sum(stage.is_done for stage in run.stages)
        state = "finished" if run.is_finished else f"{done} stages done"
        primary = run.metrics.get("test", {}).get("primary", {"score": "", "value": None})
        yield RunStatus(str(folder), run.method_name, state, primary["score"], primary["value"])
