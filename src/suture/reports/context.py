"""What every section of a report is made from: the runs, their data as far as it is there, and their models."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape

from suture.core.errors import UserError
from suture.data.classes import renamed
from suture.data.dataset import Dataset, Video
from suture.data.datasets import load_dataset
from suture.evaluation.scoring import protocol_of
from suture.reports.inference_cache import FinishedModel
from suture.reports.overlays import Judge
from suture.reports.run_facts import RunFacts
from suture.training.train import open_data_of


@dataclass
class Context:
    """The runs side by side, and what the sections share."""

    runs: list[RunFacts]
    frames: bool
    """Whether pictures of frames may be shown."""
    console: Console
    further: Sequence[Video] = ()
    """Videos beside the dataset's, without truth."""
    remarks: list[str] = field(default_factory=list)
    _opened: dict[str, Dataset | None] = field(default_factory=dict)

    @property
    def first(self) -> RunFacts:
        return self.runs[0]

    @property
    def classes(self) -> list[str]:
        return self.first.classes

    @property
    def colors(self) -> np.ndarray:
        """The classes' own colours, classes × RGB."""
        return np.array([one["color"] for one in self.first.data["classes"]], np.uint8)

    @property
    def dataset(self) -> Dataset | None:
        """The data of the first run."""
        return self.dataset_of(self.first)

    def dataset_of(self, run: RunFacts) -> Dataset | None:
        """A run's dataset; None where that is gone or has changed. The page names no path, the terminal does."""
        if run.name not in self._opened:
            try:
                dataset = open_data_of(run.data, run.config).dataset
                _refuse_changed(run, dataset)
                self._opened[run.name] = dataset
            except UserError as error:
                self._opened[run.name] = None
                said = f"[yellow]The data of {escape(run.name)} is left out:[/yellow] {escape(str(error))}"
                self.console.print(said, highlight=False, soft_wrap=True)
                self.remarks.append(
                    f"The data of {run.name} could not be read when this report was written, or was no longer what it "
                    "was in training: what needs it is left out."
                )
        return self._opened[run.name]

    @cached_property
    def models(self) -> dict[int, FinishedModel]:
        """The models of the finished runs, by the runs' numbers."""
        return {number: FinishedModel(run) for number, run in enumerate(self.runs) if run.finished}

    @cached_property
    def new_videos(self) -> list[Video]:
        """The dataset's videos that no run has learnt from."""
        learnt = {name for run in self.runs for name in run.videos("train")}
        return [video for video in self.dataset or () if video.id not in learnt]

    @cached_property
    def judged_videos(self) -> list[Video]:
        """New videos with masks: those for the test if there are any, else those for validation."""
        for split in ("test", "val"):
            if masked := [video for video in self.new_videos if video.split == split and video.with_mask]:
                return masked
        return []

    @property
    def judge(self) -> Judge | None:
        """Of judged videos, by the rules of the first run's scores of them: pictures show all runs."""
        if self.dataset is None or not self.judged_videos:
            return None
        scores = self.first.metrics.get(str(self.judged_videos[0].split), {})
        return _judge(self.first, self.dataset, scores.get("left_out", ()))

    def judge_of_training(self, run: RunFacts) -> Judge | None:
        """Of a run's training frames, as the run is scored; None where its data is gone or has changed."""
        dataset = self.dataset_of(run)
        return None if dataset is None else _judge(run, dataset)

    @cached_property
    def footage(self) -> list[Video]:
        """Videos without truth: new ones of the dataset that have no mask at all, and those that were given."""
        unmasked = [video for video in self.new_videos if video.usable and not video.with_mask]
        return [*unmasked, *with_own_names(self.further, {video.id for video in self.dataset or ()})]


def _judge(run: RunFacts, dataset: Dataset, left_out: Sequence[str] = ()) -> Judge:
    return Judge(dataset, protocol_of(dataset, run.config.evaluation.include_background, left_out))


def _refuse_changed(run: RunFacts, dataset: Dataset) -> None:
    """Data that is no longer what the run knows: its classes and frames would be taken for others."""
    if changed := renamed(run.classes, dataset.classes.names):
        raise UserError(
            f"the run was trained with other classes than {dataset.root} has now ({changed}); "
            "restore the class table that it was trained with."
        )
    lengths = {video.id: len(video) for video in dataset}
    for name, video in run.data["videos"].items():
        if lengths.get(name) != video["frames"]:
            found = f"has {lengths[name]:,} frames" if name in lengths else "is gone"
            raise UserError(
                f"video {name} of {dataset.root} {found}, expected {video['frames']:,} as in training; restore it."
            )


def read_footage(paths: Sequence[Path]) -> list[Video]:
    """The videos in files and folders; masks that lie beside them are not looked at."""
    videos = [video for path in paths for video in load_dataset(path)]
    for video in videos:
        if not video.usable:
            raise UserError(f"Video {video.id} has no usable frame: leave it out, or mend its list of excluded frames.")
    return videos


def with_own_names(videos: Sequence[Video], taken: set[str]) -> list[Video]:
    """The videos, numbered where another has the same name."""
    named = []
    for video in videos:
        name, number = video.id, 1
        while name in taken:
            number += 1
            name = f"{video.id} ({number})"
        taken = taken | {name}
        named.append(video if name == video.id else replace(video, id=name))
    return named
