"""DMT: dynamic mutual training (Feng et al., Pattern Recognition 2022).

Two models, A and B, start differently and so make different errors. In every round, each learns the pseudo labels that
the other made one round before: first the most confident ones, in the last round all. A pseudo label has a lower weight
if the learning model disagrees with it. A is the final model.
"""

import shutil
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from suture.core.settings import Settings
from suture.data.classes import IGNORE
from suture.data.sampling.augment import Patches, draw_view, render_confidence, render_images, render_labels
from suture.data.sampling.frames import Epochs, TrainingFrames, generator
from suture.losses.cross_entropy import cross_entropy
from suture.losses.dynamic_weights import dynamic_weights
from suture.methods.method import Method
from suture.methods.pseudo_labels import Progress, PseudoLabels, PseudoSettings
from suture.methods.stage import START, Part, Stage, StageContext, Total, TrainingSettings, seeded
from suture.methods.supervised import Supervised
from suture.models.segmenter import Segmenter

MAX_DOUBT_BITS = 24.0
"""−log₂ of the smallest doubt, 1 − p, in single precision."""


class RoundSettings(TrainingSettings):
    """Settings of one round of one model; five rounds have as many steps as other methods after pre-training."""

    steps: int | None = Field(200, ge=1)
    labelled: int = Field(2, ge=1)
    """Labelled frames in a batch."""
    agreed: float = Field(5.0, ge=0)
    """γ₁, the exponent of the model's probability where it agrees with the pseudo label."""
    disputed: float = Field(5.0, ge=0)
    """γ₂, the exponent where it disagrees."""

    @model_validator(mode="after")
    def _leaves_room(self) -> "RoundSettings":
        if self.labelled >= self.batch:
            raise ValueError(f"labelled is {self.labelled}, which leaves no room in a batch of {self.batch}")
        return self


class DMT(Method):
    """Pre-training of both models, then rounds in which each labels for the other."""

    class Settings(Settings):
        pretrain: TrainingSettings = TrainingSettings()
        pseudo: PseudoSettings = PseudoSettings()
        rates: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field((0.2, 0.4, 0.6, 0.8, 1.0), min_length=1)
        """Share of each class's pseudo labels, most confident first, that each round learns."""
        round: RoundSettings = RoundSettings()

    def stages(self) -> Iterator[Stage | PseudoLabels]:
        s = self.settings
        yield Supervised("pretrain-a", s.pretrain, key="pretrain")
        yield OtherStart("pretrain-b", s.pretrain, start_from=START, key="pretrain")
        a, b = "pretrain-a", "pretrain-b"
        for i, rate in enumerate(s.rates, 1):
            if i < len(s.rates):  # B is not used after the last round
                yield Teaching(f"labels-{i}-a", s.pseudo, start_from=a)
                yield Learning(f"round-{i}-b", s.round, rate, final=False, start_from=b)
            yield Teaching(f"labels-{i}-b", s.pseudo, start_from=b)
            yield Learning(f"round-{i}-a", s.round, rate, final=True, start_from=a)
            a, b = f"round-{i}-a", f"round-{i}-b"


class OtherStart(Supervised):
    """Pre-training of B, from another random decoder and head, with the frames in another order."""

    def prepare(self) -> int:
        with seeded(int(generator(self.context.seed, self.name, "weights").integers(2**62))):
            other = Segmenter.from_description(self.segmenter.describe())
        self.segmenter.decoder.load_state_dict(other.decoder.state_dict())
        self.segmenter.head.load_state_dict(other.head.state_dict())
        return super().prepare()

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"supervised_steps": 0}


class Teaching(PseudoLabels):
    """Pseudo labels of one model for the other in one round, which replace those of the round before.

    Confidence is stored as the logarithm of the doubt: on a linear scale, most pixels of a confident model would share
    the highest level, and the most confident ones could not be selected.
    """

    def run(self, context: StageContext, progress: Progress = lambda done, total: None) -> None:
        context.frames.pseudo = context.frames.confidence = {}
        if context.rank == 0:
            for folder in (context.folder / "pseudo").glob("*"):
                if folder != self.folder(context.folder):
                    shutil.rmtree(folder, ignore_errors=True)
        super().run(context, progress)

    def levels(self, sure: Tensor) -> Tensor:
        return (-(1 - sure).log2() * 255 / MAX_DOUBT_BITS).clamp(max=255).round()

    def confidence(self, levels: np.ndarray) -> np.ndarray:
        return 1 - np.exp2(-MAX_DOUBT_BITS * levels / 255)


class Taught(NamedTuple):
    """Views of labelled and unlabelled frames."""

    views: Any
    """`Patches` from the loader; once rendered, images, labels (`IGNORE` below the threshold) and confidence."""
    true: Tensor
    """B bool: frames with ground truth."""


class Learning(Stage):
    """One round of one model: ground truth, and the share `rate` of the other model's pseudo labels."""

    settings: RoundSettings
    instead = "supervised"
    thresholds: Tensor

    def __init__(
        self, name: str, settings: RoundSettings, rate: float, *, final: bool, start_from: str | None = None
    ) -> None:
        super().__init__(name, settings, start_from=start_from, key="round")
        self.rate = rate
        self.final = final

    def prepare(self) -> int:
        frames, seed = self.context.frames, self.context.seed
        self.order = Epochs(frames.labelled, seed, self.name)
        self.unlabelled_order = Epochs(frames.unlabelled, seed, self.name, "unlabelled")
        thresholds = class_thresholds(level_counts(frames), self.rate)
        self.register_buffer("thresholds", torch.from_numpy(thresholds), persistent=False)
        return len(frames)

    def facts(self) -> dict[str, Any]:
        return super().facts() | ({} if self.final else {"supervised_steps": 0})

    def draw(self, part: Part) -> Taught:
        numbers, true = zip(*(self.turn(part.step, place) for place in part.own), strict=True)
        draws = [draw_view(self.rng(part.step, place), self.settings.augment) for place in part.own]
        return Taught(self.context.frames.collate(numbers, draws, confidence=True), torch.tensor(true))

    def turn(self, step: int, place: int) -> tuple[int, bool]:
        """Frame at a place of the global batch, and True if it is labelled.

        Labelled frames are evenly spaced, so that processes get equal shares.
        """
        s = self.settings
        before, until = (place * s.labelled // s.batch, (place + 1) * s.labelled // s.batch)
        if until > before:
            return self.order[step * s.labelled + before], True
        return self.unlabelled_order[step * (s.batch - s.labelled) + place - before], False

    def render(self, batch: Taught) -> Taught:
        patches: Patches = batch.views
        size, true = self.context.size, batch.true[:, None, None]
        labels, levels = render_labels(patches, size), render_confidence(patches, size)
        assert levels is not None
        unsure = (levels * 255).round() < self.thresholds[labels]
        labels = labels.masked_fill(unsure & ~true, IGNORE)
        return batch._replace(views=(render_images(patches, size), labels, 1 - torch.exp2(-MAX_DOUBT_BITS * levels)))

    def loss(self, batch: Taught) -> Total:
        """Σ w · cross entropy / number of pixels with a label; w is 1 for ground truth."""
        (images, labels, confidence), s = batch.views, self.settings
        logits = self.segmenter(images)
        weights = dynamic_weights(logits, labels, confidence, s.agreed, s.disputed)
        return Total(*cross_entropy(logits, labels, weights.masked_fill(batch.true[:, None, None], 1)))


def level_counts(frames: TrainingFrames) -> np.ndarray:
    """Number of pseudo-labelled pixels by label and level of confidence: 256 × 256."""
    counts = np.zeros(256 * 256, np.int64)
    for number, labels in frames.pseudo.items():
        pairs = labels.astype(np.uint16) * 256 + frames.confidence[number]
        counts += np.bincount(pairs.ravel(), minlength=len(counts))
    return counts.reshape(256, 256)


def class_thresholds(counts: np.ndarray, rate: float) -> np.ndarray:
    """Lowest level of confidence of each class that the share `rate` of its pixels reaches.

    >>> counts = np.array([[3, 2, 0, 5], [0, 1, 1, 0]])
    >>> class_thresholds(counts, 0.5), class_thresholds(counts, 0.6), class_thresholds(counts, 1.0)
    (array([3, 2]), array([1, 1]), array([0, 1]))
    """
    at_least = counts[:, ::-1].cumsum(1)[:, ::-1]  # falls with the level
    return (at_least >= rate * at_least[:, :1]).sum(1) - 1
