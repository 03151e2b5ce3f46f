"""Pseudo-label guided cross-video pixel contrast (Yu et al., IROS 2022).

Pre-train on the labelled frames; give every unlabelled frame a pseudo label; pull together the embeddings of pixels of
one class and push apart those of others, across views, shots and videos; fine-tune on the labelled frames.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from suture.core.settings import Settings
from suture.data.sampling.augment import Patches, draw_view, render_confidence, render_images, render_labels
from suture.data.sampling.keys import KeyPool, KeySettings
from suture.losses.pixel_contrast import ClassSums, Contrasts, class_sums, contrasts, pixel_contrast
from suture.methods.bank import Bank
from suture.methods.branches import BranchSettings, TwoBranches
from suture.methods.method import Method, method
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.methods.stage import Part, Stage, Total, TrainingSettings, all_gather, all_sum, drawn_from
from suture.methods.supervised import OhemSettings, Supervised, finetune


class ContrastSettings(BranchSettings):
    """The contrast stage. What it has beyond both branches' settings and its keys is not in the paper, and off."""

    keys: KeySettings = KeySettings()
    temperature: float | None = Field(None, gt=0)
    class_balanced: bool = False
    confidence_weighted: bool = False
    negatives: Literal["sum", "mean"] = "sum"
    symmetric: bool = False
    """Whether the query and its first other view also change places."""

    @model_validator(mode="after")
    def _possible(self) -> "ContrastSettings":
        if self.symmetric and (not self.keys.views or self.confidence_weighted):
            raise ValueError("symmetric needs keys.views of at least 1 and confidence_weighted: false")
        return self


@method("pgvcl")
class PGVCL(Method):
    """Pre-train, pseudo labels, contrast, fine-tune."""

    class Settings(Settings):
        pretrain: TrainingSettings = TrainingSettings()
        pseudo: PseudoSettings = PseudoSettings()
        contrast: ContrastSettings = ContrastSettings()
        finetune: OhemSettings = OhemSettings()

    def stages(self) -> Iterator[Stage | PseudoLabels]:
        s = self.settings
        yield Supervised("pretrain", s.pretrain)
        yield PseudoLabels("pseudo", s.pseudo)
        yield Contrast("contrast", s.contrast)
        yield finetune(s.finetune)


class ContrastBatch(NamedTuple):
    """Query views and key views (as patches from the loader, rendered on the device), and who meets whom."""

    queries: Any
    keys: Any
    query_numbers: Tensor
    """B: the numbers of the query frames."""
    own_numbers: Tensor
    """B × own keys: the numbers of each query's own key frames; their views come first in `keys`."""
    recalled: Tensor
    """B × K: the numbers of frames of each query's shot that the bank stands for."""
    others: Tensor
    """B × N_v: other-video keys, as positions in the own keys of all processes followed by this one's further keys."""


class Views(NamedTuple):
    """Images at training size, labels and confidence on the feature grid."""

    images: Tensor
    labels: Tensor
    confidence: Tensor | None


class Contrast(TwoBranches):
    """The pixel contrast over all training frames: queries in the online branch, keys in the momentum branch."""

    settings: ContrastSettings

    def hint(self, cases: int, videos: int) -> str | None:
        keys = self.settings.keys
        if (cases if keys.apart == "case" else videos) > 1 or not keys.other_videos:
            return None
        mend = f" Its {videos} videos are keys for each other with --set {self.key}.keys.apart=video."
        return (
            f"There is only one training {keys.apart}: the contrast has no keys of other videos, though "
            f"{self.key}.keys.other_videos is {keys.other_videos}.{mend if videos > 1 else ''}"
        )

    def prepare(self) -> int:
        s, job = self.settings, self.job
        owners = (job.frames.cases if s.keys.apart == "case" else job.frames.places.video_of).astype(np.int64)
        self.pool = KeyPool(owners, job.shots)
        with drawn_from(job.seed):
            self.make_branches()
        self.bank = None
        if s.keys.mode == "bank":
            self.bank = Bank(torch.from_numpy(owners), len(job.frames.classes), s.channels)
        return len(job.frames)

    def draw(self, part: Part) -> ContrastBatch:
        s, frames = self.settings, self.job.frames
        numbers = [self.order[part.step * s.batch + place] for place in part.all]
        plan = self.pool.draw(self.rng(part.step, f"keys {part.all.start}"), numbers, s.keys)
        mine = slice(part.own.start - part.all.start, part.own.stop - part.all.start)
        # A process encodes the further keys of its own queries; those of the queries before it are not in its list.
        own, extra_of = plan.own[mine], plan.extra_of
        extra = plan.extra[(extra_of >= mine.start) & (extra_of < mine.stop)]
        others = plan.others[mine] - (plan.others[mine] >= plan.own.size) * int((extra_of < mine.start).sum())

        query_draws, own_draws, extra_draws = [], [], []
        for row, place in enumerate(part.own):
            rng = self.rng(part.step, place)
            query_draws.append(draw_view(rng, s.augment))
            own_draws += [draw_view(rng, s.augment) for _ in own[row]]
            extra_draws += [draw_view(rng, s.augment) for _ in range(int((extra_of == mine.start + row).sum()))]
        return ContrastBatch(
            frames.collate(numbers[mine], query_draws, confidence=s.confidence_weighted),
            frames.collate([*own.ravel().tolist(), *extra.tolist()], own_draws + extra_draws),
            torch.tensor(numbers[mine]),
            torch.from_numpy(own.copy()),
            torch.from_numpy(plan.recalled[mine].copy()),
            torch.from_numpy(others),
        )

    def render(self, batch: ContrastBatch) -> ContrastBatch:
        size, stride = self.job.size, self.segmenter.stride

        def views(patches: Patches) -> Views:
            return Views(
                render_images(patches, size),
                render_labels(patches, size, stride),
                render_confidence(patches, size, stride),
            )

        return batch._replace(queries=views(batch.queries), keys=views(batch.keys))

    def loss(self, batch: ContrastBatch) -> Total:
        """−log(e^{S⁺} / (e^{S⁺} + e^{S⁻})) of every query pixel, keys from the momentum branch."""
        sums = self.sums_of(batch.keys)
        total = self.one_way(batch, batch.queries, sums)
        if not self.settings.symmetric:
            return total
        # Each query and its first other view change places.
        first = torch.arange(len(batch.query_numbers), device=sums.counts.device) * batch.own_numbers.shape[1]
        swapped = ClassSums(
            *(x.index_copy(0, first, y) for x, y in zip(sums, self.sums_of(batch.queries), strict=True))
        )
        views = Views(batch.keys.images[first], batch.keys.labels[first], batch.queries.confidence)
        back = self.one_way(batch, views, swapped)
        return Total(total.loss + back.loss, total.weight + back.weight)

    def sums_of(self, keys: Views) -> ClassSums:
        """Key frames as the loss needs them: class sums of the momentum branch's embeddings."""
        return class_sums(self.momentum(keys.images), keys.labels, len(self.job.frames.classes))

    def one_way(self, batch: ContrastBatch, queries: Views, sums: ClassSums) -> Total:
        s = self.settings
        loss, weight = pixel_contrast(
            self.online(queries.images),
            queries.labels,
            self.against(batch, sums),
            temperature=s.temperature,
            class_balanced=s.class_balanced,
            confidence=queries.confidence,
            negatives=s.negatives,
            all_sum=all_sum,
        )
        return Total(loss, weight)

    def against(self, batch: ContrastBatch, keys: ClassSums) -> Contrasts:
        """What each query is contrasted with: its own keys, and what stands for other frames and other videos."""
        queries, per_query = batch.own_numbers.shape
        own = ClassSums(*(x[: queries * per_query] for x in keys))
        met = contrasts(ClassSums(*(x.unflatten(0, (queries, per_query)) for x in own)))
        if self.bank is not None:
            met = met + self.bank.recall(batch.recalled)
            met = met + self.bank.expected(batch.query_numbers, self.settings.keys.other_videos)
            self.bank.put(all_gather(batch.own_numbers.flatten()), ClassSums(*map(all_gather, own)))
        elif batch.others.shape[1]:
            further = ClassSums(*(x[queries * per_query :] for x in keys))
            pool = ClassSums(*(torch.cat([all_gather(o), f]) for o, f in zip(own, further, strict=True)))
            met = met + contrasts(ClassSums(*(x[batch.others] for x in pool)))
        return met
