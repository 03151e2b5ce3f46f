"""What one start of a run works with, and how it scores a segmenter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from suture.data.dataset import Dataset
from suture.data.labelling import Labelling
from suture.data.scoring_rules import Protocol
from suture.evaluation.scoring import Frames, protocol_of, score_frames, scores
from suture.models.segmenter import Segmenter
from suture.training.callbacks import bar
from suture.training.config import Config
from suture.training.distributed import Processes
from suture.training.run_folder import Run


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
    data: Mapping[str, Any]
    """What the run learns from, or has learnt from, as its `data.json` says it."""
    processes: Processes
    console: Console

    def protocol(self, which: str) -> Protocol:
        """The rules by which a set is scored; validation is not asked for what training could not learn."""
        unlearnt = self.data.get("unlearnt", ()) if which == "val" else ()
        return protocol_of(self.opened.dataset, self.config.evaluation.include_background, unlearnt)

    def score(self, segmenter: Segmenter, which: str, frames: Frames, title: str | None = None) -> dict[str, Any]:
        """The scores of frames with masks of a set, by its protocol, and in which precision; several processes share
        the work.

        Without a title there is no bar: a training stage shows its own.
        """
        config, processes, dataset = self.config, self.processes, self.opened.dataset
        settings, protocol = config.evaluation, self.protocol(which)
        console = self.console if title else Console(quiet=True)
        with bar(title or "", sum(map(len, frames.values())), console) as (progress, task):
            scorer = score_frames(
                dataset,
                protocol,
                segmenter,
                frames,
                config.data.height_width,
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
        return scores(dataset, protocol, whole) | {"precision": processes.precision(config.compute)}
