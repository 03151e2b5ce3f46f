"""PGV-CL: pseudo-label guided cross-video pixel contrast (Yu et al., IROS 2022).

Pre-train on the labelled frames, predict pseudo labels for the others, contrast pixel embeddings across views, shots
and videos, fine-tune on the labelled frames. `examples/pgvcl_plain.py` has the same in one page of plain PyTorch.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from suture.core.settings import Settings
from suture.data.sampling.augment import Patches, draw_view, render_images, render_labels
from suture.data.sampling.keys import KeyPool, KeySettings
from suture.losses.pixel_contrast import ClassSums, Contrasts, class_sums, contrasts, pixel_contrast
from suture.methods.bank import Bank
from suture.methods.branches import BranchSettings, TwoBranches
from suture.methods.method import Method
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.methods.stage import Part, Stage, Total, TrainingSettings, all_gather, all_sum, seeded
from suture.methods.supervised import OhemSettings, Supervised, finetune


class ContrastSettings(BranchSettings):
    """Settings of the contrast stage. `temperature` and `class_balanced` are not in the paper, and off."""

    keys: KeySettings = KeySettings()
    temperature: float | None = Field(None, gt=0)
    """Divisor of the similarities; null is 1."""
    class_balanced: bool = False
    """Give every class in the batch the same weight."""


class PGVCL(Method):
    """Pre-training, pseudo labels, contrast, fine-tuning."""

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


class LabelledViews(NamedTuple):
    """Rendered views with their labels."""

    images: Tensor
    """N 3 H W"""
    labels: Tensor
    """N h w, at the cell centres of the feature grid"""


class ContrastBatch(NamedTuple):
    """Views of B queries and of their key frames."""

    queries: Any
    """`Patches` from the loader, `LabelledViews` once rendered."""
    keys: Any
    """The own keys of all queries, then the extra ones, as in `KeyPlan`."""
    query_numbers: Tensor
    """B: frame numbers of the queries."""
    own_numbers: Tensor
    """B × own keys: frame numbers of each query's own keys."""
    recalled: Tensor
    """B × K: frame numbers of the same shot that the bank replaces."""
    others: Tensor
    """B × N_v: positions of the other-video keys in `KeyPlan`."""


class Contrast(TwoBranches):
    """Pixel contrast over all training frames: queries in the online branch, keys in the momentum branch."""

    settings: ContrastSettings

    def hint(self, cases: int, videos: int) -> str | None:
        keys = self.settings.keys
        if (cases if keys.apart == "case" else videos) > 1 or not keys.other_videos:
            return None
        fix = f" Use its {videos} videos with --set {self.key}.keys.apart=video." if videos > 1 else ""
        return f"There is only one training {keys.apart}: the contrast has no keys of other videos.{fix}"

    def prepare(self) -> int:
        s, frames = self.settings, self.context.frames
        owners = (frames.cases if s.keys.apart == "case" else frames.places.video_of).astype(np.int64)
        self.pool = KeyPool(owners, self.context.shots)
        with seeded(self.context.seed):
            self.make_branches()
        self.bank = None
        if s.keys.mode == "bank":
            self.bank = Bank(torch.from_numpy(owners), len(frames.classes), s.channels)
        return len(frames)

    def draw(self, part: Part) -> ContrastBatch:
        """Draw keys of four levels: the query frame, its other views, its shot, other videos."""
        augment, frames = self.settings.augment, self.context.frames
        numbers = self.numbers(self.order, part.step, part.all)
        rng = self.rng(part.step, f"keys {part.all.start}")
        plan = self.pool.draw(rng, numbers, self.settings.keys).share(part.rows)

        query_draws, own_draws, extra_draws = [], [], []
        for row, place in enumerate(part.own):
            rng = self.rng(part.step, place)
            query_draws.append(draw_view(rng, augment))
            own_draws += [draw_view(rng, augment) for _ in plan.own[row]]
            extra_draws += [draw_view(rng, augment) for _ in range((plan.extra_of == row).sum())]
        queries = numbers[part.rows]
        return ContrastBatch(
            frames.collate(queries, query_draws),
            frames.collate([*plan.own.ravel().tolist(), *plan.extra.tolist()], own_draws + extra_draws),
            torch.tensor(queries),
            torch.from_numpy(plan.own),
            torch.from_numpy(plan.recalled),
            torch.from_numpy(plan.others),
        )

    def render(self, batch: ContrastBatch) -> ContrastBatch:
        size, stride = self.context.size, self.segmenter.stride

        def views(patches: Patches) -> LabelledViews:
            return LabelledViews(render_images(patches, size), render_labels(patches, size, stride))

        return batch._replace(queries=views(batch.queries), keys=views(batch.keys))

    def loss(self, batch: ContrastBatch) -> Total:
        """Equation 6: −log(e^{S⁺} / (e^{S⁺} + e^{S⁻})) of every query pixel."""
        s = self.settings
        embeddings = self.online(batch.queries.images)
        met = self.query_contrasts(batch, self.key_sums(batch.keys))
        return Total(
            *pixel_contrast(
                embeddings,
                batch.queries.labels,
                met,
                temperature=s.temperature,
                class_balanced=s.class_balanced,
                all_sum=all_sum,
            )
        )

    def key_sums(self, keys: LabelledViews) -> ClassSums:
        """Class sums of the key frames' embeddings in the momentum branch."""
        return class_sums(self.momentum(keys.images), keys.labels, len(self.context.frames.classes))

    def query_contrasts(self, batch: ContrastBatch, keys: ClassSums) -> Contrasts:
        """Positives and negatives of each query, from all of its key frames."""
        queries, per_query = batch.own_numbers.shape
        own = ClassSums(*(x[: queries * per_query] for x in keys))
        met = contrasts(ClassSums(*(x.unflatten(0, (queries, per_query)) for x in own)))
        if self.bank is not None:
            met = met + self.bank.recall(batch.recalled)
            met = met + self.bank.expected(batch.query_numbers, self.settings.keys.other_videos)
            self.bank.put(all_gather(batch.own_numbers.flatten()), ClassSums(*map(all_gather, own)))
        elif batch.others.shape[1]:
            extra = ClassSums(*(x[queries * per_query :] for x in keys))
            pool = ClassSums(*(torch.cat([all_gather(o), e]) for o, e in zip(own, extra, strict=True)))
            met = met + contrasts(ClassSums(*(x[batch.others] for x in pool)))
        return met
