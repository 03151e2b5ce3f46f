"""ReportContext: runs, data and models that the sections of a report share."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from suture.core.errors import UserError
from suture.core.progress import ProgressBar
from suture.data.classes import ClassTable, renamed
from suture.data.dataset import Dataset, Video
from suture.data.datasets import load_dataset
from suture.evaluation.scoring import protocol_of
from suture.reports.finished_model import FinishedModel
from suture.reports.frame_choice import FrameKey, by_video
from suture.reports.frame_scorer import FrameScorer
from suture.reports.gallery import Gallery, Panel
from suture.reports.reported_run import ReportedRun
from suture.training.train import open_data_of


@dataclass
class ReportContext:
    """The runs side by side, with their datasets and models, opened when needed."""

    runs: list[ReportedRun]
    frames: bool
    """True if the page may hold pictures of frames."""
    console: Console
    further_videos: Sequence[Video] = ()
    """Videos without truth beside those of the dataset."""
    remarks: list[str] = field(default_factory=list)
    _opened: dict[Path, Dataset | None] = field(default_factory=dict)

    @property
    def first(self) -> ReportedRun:
        return self.runs[0]

    @cached_property
    def class_table(self) -> ClassTable:
        """Names and colours of the classes."""
        classes = self.first.data["classes"]
        return ClassTable(tuple(one["name"] for one in classes), tuple(tuple(one["color"]) for one in classes), {})

    @property
    def dataset(self) -> Dataset | None:
        """Data of the first run."""
        return self.dataset_of(self.first)

    def dataset_of(self, run: ReportedRun) -> Dataset | None:
        """Open a run's dataset; None, with a remark, if it is gone or has changed."""
        if run.folder not in self._opened:
            self._opened[run.folder] = None
            try:
                dataset = open_data_of(run.data, run.config).dataset
                _require_unchanged(run, dataset)
                self._opened[run.folder] = dataset
            except UserError as error:
                remark = (
                    f"The data of {run.title} could not be read when this report was written, or had changed since "
                    "the training: what needs it is left out."
                )
                self.warn(f"The data of {run.title} is left out", error, remark)
        return self._opened[run.folder]

    def warn(self, consequence: str, error: UserError, remark: str) -> None:
        """Print an error, which may name paths, and add a remark without them to the page."""
        text = f"[yellow]{escape(consequence)}:[/yellow] {escape(str(error))}"
        self.console.print(text, highlight=False, soft_wrap=True)
        self.remarks.append(remark)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar; yields a function that counts finished steps."""
        with ProgressBar(self.console) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.advance(task, done)

    @cached_property
    def models(self) -> dict[int, FinishedModel]:
        """Models of the finished runs, by the runs' numbers."""
        return {number: FinishedModel(run) for number, run in enumerate(self.runs) if run.is_trained}

    @cached_property
    def new_videos(self) -> list[Video]:
        """Videos of the dataset that no run was trained on."""
        trained = {name for run in self.runs for name in run.videos("train")}
        return [video for video in self.dataset or () if video.id not in trained]

    @cached_property
    def judged_videos(self) -> list[Video]:
        """New videos with masks: those for the test if there are any, else those for validation."""
        for split in ("test", "val"):
            if masked := [video for video in self.new_videos if video.split == split and video.with_mask]:
                return masked
        return []

    def judge_of(self, run: ReportedRun, left_out: Sequence[str] = ()) -> FrameScorer | None:
        """Return the scorer of a run's frames, without the classes that are left out; None without its data."""
        if (dataset := self.dataset_of(run)) is None:
            return None
        return FrameScorer(dataset, protocol_of(dataset, run.config.evaluation.include_background, left_out))

    @property
    def judge(self) -> FrameScorer | None:
        """Scorer of the judged videos, by the rules of the first run's scores; None without such videos."""
        if not self.judged_videos:
            return None
        scores = self.first.metrics.get(str(self.judged_videos[0].split), {})
        return self.judge_of(self.first, scores.get("left_out", ()))

    def pictures(
        self,
        videos: Mapping[str, Video],
        chosen: Mapping[FrameKey, Sequence[str]],
        judge: FrameScorer | None = None,
        drafts: Mapping[str, Callable[[FrameKey], np.ndarray]] = MappingProxyType({}),
        **options: Any,
    ) -> Gallery:
        """Make a gallery of the truth of frames, of drafts, and of the predictions of every finished run.

        Args:
            videos: Videos by their id.
            chosen: Frames, each with the reasons for its choice.
            judge: Scorer with the true masks, if there are any.
            drafts: Readers of further masks, by their title.
            options: Further fields of the gallery.
        """
        truths = judge.truths(chosen) if judge else {}
        panels = [Panel("truth", "truth", truths)] if truths else []
        masks = {title: {key: read(key) for key in chosen} for title, read in drafts.items()}
        frames = by_video(sorted(chosen))
        with self.progress("predict pictures", len(chosen) * len(self.models)) as progress:
            for model in self.models.values():
                masks[model.run.title] = dict(model.masks(videos, frames, progress))
        for title, of_title in masks.items():
            ious = {key: judge.iou(key, of_title[key], truth) for key, truth in truths.items()} if judge else {}
            panels.append(Panel(title, "prediction", of_title, ious))
        return Gallery(videos, chosen, panels, **options)

    @cached_property
    def footage(self) -> list[Video]:
        """Videos without truth: new ones of the dataset without any mask, and those given by the user."""
        unmasked = [video for video in self.new_videos if video.usable and not video.with_mask]
        names = Counter(video.id for video in (*(self.dataset or ()), *self.further_videos))
        if twice := [video.id for video in self.further_videos if names[video.id] > 1]:
            raise UserError(f"Several videos are called {twice[0]}: rename the file that --videos names.")
        return [*unmasked, *self.further_videos]


def _require_unchanged(run: ReportedRun, dataset: Dataset) -> None:
    if changed := renamed(run.classes, dataset.classes.names):
        raise UserError(f"the classes of {dataset.root} have changed since the training ({changed}): restore them.")
    lengths = {video.id: len(video) for video in dataset}
    for name, video in run.data["videos"].items():
        if lengths.get(name) != video["frames"]:
            raise UserError(f"video {name} of {dataset.root} does not have {video['frames']:,} frames: restore it.")


def read_footage(paths: Sequence[Path]) -> list[Video]:
    """Read videos with usable frames from files and folders, without masks beside them."""
    return [video for path in paths for video in load_dataset(path) if video.usable]
