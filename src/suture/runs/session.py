"""What one start of a run works with, and how it scores a segmenter."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Console

from suture.data.dataset import Dataset
from suture.data.labelling import Labelling
from suture.evaluation.evaluate import Frames, score_frames, scores
from suture.models.segmenter import Segmenter
from suture.runs.callbacks import bar
from suture.runs.config import Config
from suture.runs.folder import Run
from suture.runs.processes import Processes


@dataclass(frozen=True)
class Opened:
    """A run's data: the dataset with validation carved out, and which frames are labelled."""

    dataset: Dataset
    labelling: Labelling


@dataclass(frozen=True)
class Session:
    """One start of a run, in one process."""

    run: Run
    config: Config
    opened: Opened
    processes: Processes
    console: Console

    @cached_property
    def unlearnt(self) -> tuple[str, ...]:
        """The classes that validation videos held out by `data.validation` are not asked for."""
        return tuple(self.run.data.get("unlearnt", ()))

    def score(self, segmenter: Segmenter, which: str, frames: Frames, title: str | None = None) -> dict[str, Any]:
        """The scores of frames with masks of a set, by the dataset's protocol; several processes share the work.

        Without a title there is no bar: a training stage shows its own.
        """
        config, processes, dataset = self.config, self.processes, self.opened.dataset
        settings = config.evaluation
        left_out = self.unlearnt if which == "val" else ()
        console = self.console if title else Console(quiet=True)
        with bar(title or "", sum(map(len, frames.values())), console) as (progress, task):
            scorer = score_frames(
                dataset,
                segmenter,
                frames,
                config.data.height_width,
                include_background=settings.include_background,
                unlearnt=left_out,
                progress=lambda done: progress.advance(task, done),
                rank=processes.rank,
                world=processes.world,
                batch=settings.batch,
                flip=settings.flip,
                scales=settings.scales,
                autocast=processes.autocast(config.compute),
            )
        whole, *others = processes.gather(scorer)
        for other in others:
            whole = whole + other
        return scores(dataset, whole, settings.include_background, left_out)
