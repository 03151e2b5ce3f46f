"""Session: one start of a run in one process, with its data and networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from suture.data.dataset import Dataset
from suture.data.labelling import Labelling
from suture.data.read_scenes import MaskSource
from suture.data.scoring_rules import Protocol
from suture.evaluation.scoring import Frames, frames_to_score, protocol_of, score_frames, scores
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import Stage
from suture.models.segmenter import Segmenter
from suture.training.callbacks import bar
from suture.training.config import Config
from suture.training.distributed import Processes
from suture.training.run_folder import Run

AnyStage = Stage | PseudoLabels


@dataclass(frozen=True)
class Opened:
    """Data of a run: the dataset with its validation videos, and the labelled frames."""

    dataset: Dataset
    labelling: Labelling
    seen: frozenset[str] = frozenset()
    """Videos that are trained on without their labels, and scored as the set `seen`."""

    def frames_to_score(self, splits: Sequence[str], completion: bool) -> dict[str, Frames]:
        """Collect the frames to score by set."""
        return frames_to_score(self.dataset, self.labelling, splits, completion, self.seen)


@dataclass(frozen=True)
class Session:
    """One start of a run, in one process."""

    run: Run
    config: Config
    opened: Opened
    data: Mapping[str, Any]
    """Content of `data.json`."""
    processes: Processes
    console: Console
    segmenter: Segmenter
    stages: Sequence[AnyStage] = ()

    def protocol(self, which: str) -> Protocol:
        """Return the scoring rules of a set; validation leaves out classes that training could not learn."""
        unlearnt = self.data.get("unlearnt", ()) if which == "val" else ()
        return protocol_of(self.opened.dataset, self.config.evaluation.include_background, unlearnt)

    def print(self, *lines: str) -> None:
        """Print lines without markup, colours or line breaks."""
        for line in lines:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def score(
        self,
        segmenter: Segmenter,
        which: str,
        frames: Frames,
        title: str | None = None,
        masks: MaskSource | None = None,
    ) -> dict[str, Any]:
        """Score a segmenter on the masks of a set; all processes share the work.

        Args:
            segmenter: The network.
            which: Name of the set: `val`, `test` or `completion`.
            frames: Frames by video.
            title: Title of the progress bar; None shows no bar.
            masks: Scored instead of the segmenter's masks.
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
                masks=masks,
                progress=lambda done: progress.advance(task, done),
                rank=processes.rank,
                world=processes.world,
                batch=settings.batch,
                flip=dataset.classes.flip_order(settings.flip),
                scales=settings.scales,
                autocast=processes.autocast(config.compute),
            )
        whole, *others = processes.gather(scorer)
        for other in others:
            whole = whole + other
        return scores(dataset, protocol, whole) | {"precision": processes.precision(config.compute)}
