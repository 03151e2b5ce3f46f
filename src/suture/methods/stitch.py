"""Stitch: one training on labelled and unlabelled frames that takes from the video what it knows.

The student learns from strong views of the labelled frames (`strong`, its control) and, from strong views of unlabelled
ones, what the teacher says of the whole frames: the teacher is the average of the student's weights and what is handed
on. Before the student learns it, the true labels of the nearest labelled frame of the shot are carried over along the
correspondence of the teacher's features, and the two opinions are joined. Beside the classifier, pixel embeddings are
contrasted with those of the batch and of other videos; that fades, so that it shapes the features without a say in
where the training ends.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from suture.data.augment import UNCHANGED, WHOLE, Patches, ViewDraw, draw_view, look_closer, render_labels, resample
from suture.data.classes import IGNORE
from suture.data.neighbours import LabelledNeighbours
from suture.losses.correspondence import (
    affinity,
    at_cells,
    carry,
    comes_back,
    descriptors,
    from_cells,
    join,
    to_cells,
)
from suture.losses.cross_entropy import cross_entropy
from suture.losses.pixel_contrast import ClassSums, class_sums, contrasts, pixel_contrast
from suture.methods.bank import Bank
from suture.methods.cutmix import cut_mix, draw_patch, in_boxes
from suture.methods.method import Method, method
from suture.methods.semi import SemiSettings, SemiSupervised
from suture.methods.stage import Job, Part, Settings, Stage, Total, all_gather, all_sum
from suture.methods.strong import StrongBatch, StrongSettings, StrongViews, draw_donor, labelled_loss, strengthen
from suture.models.momentum import MomentumCopy
from suture.models.projector import Projector

CELL = 8
"""Pixels: features on a finer grid are pooled to it where pixel pairs are compared."""


class CorrespondenceSettings(Settings):
    """How labels are carried from a labelled frame."""

    neighbours: Literal[1, 2] = 1
    """The nearest labelled frame of the shot, or the ones before and after."""
    radius: float = Field(0.5, gt=0, le=1)
    """How far a point may have moved, as a share of the view's longer side."""
    top: int = Field(5, ge=1)
    """How many of the most alike cells speak for a cell."""
    temperature: float = Field(0.1, gt=0)
    """Of the softmax that weighs them."""
    cycle: int = Field(1, ge=0)
    """How many cells from home the way there and back may end."""
    half_life: float = Field(10, gt=0)
    """The distance in frames at which a carried label is half as likely to be right."""


class EmbeddingSettings(Settings):
    """How pixels are embedded and contrasted."""

    hidden: int = Field(512, ge=1)
    channels: int = Field(128, ge=1)
    temperature: float = Field(0.1, gt=0)
    class_balanced: bool = True
    bank: int = Field(16, ge=0)
    """For how many frames of other cases the bank stands."""


class StitchSettings(StrongSettings, SemiSettings):
    """A weight of 0 switches its part off."""

    consistency: float = Field(1.0, ge=0)
    """The weight of what the teacher says, beside 1 of the labels."""
    rise: float = Field(0.0, ge=0, le=1)
    """The share of the steps over which that weight rises from 0."""
    confidence: float = Field(0.95, ge=0, le=1)
    """How sure a target must be of its class."""
    whole: bool = True
    """Whether the teacher sees whole frames, and not what the student sees of them."""
    propagate: float = Field(0.5, ge=0, le=1)
    """How likely a label that was carried from the next frame is right."""
    correspondence: CorrespondenceSettings = CorrespondenceSettings()
    contrast: float = Field(0.1, ge=0)
    """The weight of the contrast at the start; a cosine takes it to 0."""
    embedding: EmbeddingSettings = EmbeddingSettings()


@method("stitch")
class StitchMethod(Method):
    """Labels, consistency, the video and contrast, in one stage."""

    class Settings(Settings):
        train: StitchSettings = StitchSettings()

    def stages(self) -> Iterator[Stage]:
        yield Stitch("train", self.settings.train)


class StitchBatch(NamedTuple):
    """A step as the loader gives it: B unlabelled frames with K neighbours each, beside the labelled ones."""

    labelled: StrongBatch
    numbers: Tensor
    """B: the unlabelled frames."""
    views: Patches
    """As the student sees them, but for the colours."""
    frames: Patches | None
    """As the teacher sees them; None: as the student does."""
    places: Tensor
    """B 4: the box, in fractions of the scene, that the student sees."""
    colors: Tensor
    """B 6, of the strong views."""
    donors: Tensor
    boxes: Tensor
    """As in `StrongBatch`, of the strong views."""
    neighbours: Patches | None
    """B · K, seen as the frames they belong to; None where nobody needs them."""
    neighbour_numbers: Tensor
    nearness: Tensor
    """B K: the say of each neighbour, by its distance; 0 where there is none."""


class StitchViews(NamedTuple):
    """A step as networks see it."""

    images: Tensor
    labels: Tensor
    labelled_numbers: Tensor
    weak: Tensor
    """B 3 H W: what the teacher sees."""
    in_frame: Tensor
    """B H W: which of that is inside the view of its video."""
    places: Tensor
    turned: Tensor
    """B: whether the student sees its box flipped."""
    in_view: Tensor
    """The same of what the student sees."""
    strong: Tensor
    patched: Tensor
    """B H W: where strong views show another frame."""
    numbers: Tensor
    neighbours: Tensor | None
    neighbour_labels: Tensor | None
    neighbour_numbers: Tensor
    nearness: Tensor


class Taught(NamedTuple):
    """What the teacher says of unlabelled frames."""

    target: Tensor
    """B H W, where the student looks: classes; IGNORE outside the view."""
    weight: Tensor
    """B H W: how sure that is; 0 where it is not sure enough to be learnt."""
    known: Tensor
    """B H W, where the teacher looks: classes of which it is sure, else IGNORE."""
    features: Tensor
    """Of the neighbours, if any, then of the frames."""


class Stitch(SemiSupervised):
    """L = L_labelled + consistency · L_unlabelled + contrast · (1 + cos πt) / 2 · L_contrast, with t from 0 to 1."""

    settings: StitchSettings
    average: MomentumCopy
    """The teacher: the average that every stage can keep."""

    def prepare(self) -> int:
        s, job = self.settings, self.job
        length = super().prepare()
        self.views = StrongViews(self, s)
        self.around = LabelledNeighbours(job.frames, job.shots)
        self.cases = job.frames.cases
        self.classes = len(job.frames.classes)
        self.cell = max(CELL, self.segmenter.stride)
        self.bank = None
        if s.contrast:
            e = s.embedding
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(job.seed)
                self.projector = Projector(self.segmenter.features_channels, e.hidden, e.channels)
            self.key_projector = MomentumCopy(self.projector, buffers="ema").eval()
            if e.bank:
                self.bank = Bank(torch.from_numpy(self.cases), self.classes, e.channels)
        return length

    def begin(self, job: Job) -> None:
        super().begin(job)
        self.average.eval()

    def groups(self) -> list[dict[str, Any]]:
        if not self.settings.contrast:
            return super().groups()
        o = self.settings.optimizer
        return [*super().groups(), {"params": list(self.projector.parameters()), "lr": o.lr * o.head_factor}]

    # Which frames, and what is seen of them

    def draw(self, part: Part) -> StitchBatch:
        s, step = self.settings, part.step
        own, everyone = self.unlabelled_places(part.own), self.unlabelled_places(part.all)
        cases = self.cases[self.unlabelled_numbers(step, everyone)]
        numbers = self.unlabelled_numbers(step, own)
        draws, donors, boxes = [], [], []
        for place in own:
            rng = self.rng(step, f"unlabelled {place}")
            draws.append(draw_view(rng, s.strong))
            donors.append(draw_donor(rng, place - everyone.start, cases, s.restyle))
            boxes.append(draw_patch(rng, s.cutmix))
        views = [draw._replace(color=UNCHANGED) for draw in draws]
        whole = ViewDraw(WHOLE, False, UNCHANGED)
        seen = [whole for _ in draws] if s.whole else views  # by the teacher

        count = s.correspondence.neighbours if s.propagate or s.contrast else 0
        found = [neighbour for number in numbers for neighbour in self.around.of(number, count)]
        neighbours = [number for number, _ in found]
        nearness = [0.5 ** (distance / s.correspondence.half_life) for _, distance in found]
        alike = [draw for draw in seen for _ in range(count)]
        return StitchBatch(
            self.views.draw(part),
            torch.tensor(numbers),
            self.unlabelled.collate(numbers, views),
            self.unlabelled.collate(numbers, seen) if s.whole else None,
            torch.from_numpy(np.array([draw.box for draw in draws], np.float32)),
            torch.from_numpy(np.array([draw.color for draw in draws], np.float32)),
            torch.tensor(donors),
            torch.from_numpy(np.array(boxes, np.float32)),
            self.job.frames.collate(neighbours, alike) if count else None,
            torch.tensor(neighbours, dtype=torch.long),
            torch.tensor(nearness).view(len(numbers), count),
        )

    def render(self, batch: StitchBatch) -> StitchViews:
        size = self.job.size
        views, in_view = self.look(batch.views)
        weak, in_frame = (views, in_view) if batch.frames is None else self.look(batch.frames)
        patched = in_boxes(batch.boxes, size)
        strong = strengthen(views, in_view, batch.donors, batch.colors)
        near = batch.neighbours
        return StitchViews(
            *self.views.render(batch.labelled),
            batch.labelled.numbers,
            weak,
            in_frame,
            batch.places,
            batch.views.flip,
            in_view,
            cut_mix(strong, patched, self.job.rank),
            patched,
            batch.numbers,
            None if near is None else resample(near, size),
            None if near is None else render_labels(near, size),
            batch.neighbour_numbers,
            batch.nearness,
        )

    def look(self, patches: Patches) -> tuple[Tensor, Tensor]:
        """Images of unlabelled frames, and which of their pixels are inside the view."""
        size = self.job.size
        return resample(patches, size), render_labels(patches, size) != IGNORE

    # What is learnt

    def loss(self, batch: StitchViews) -> Total:
        s, rank = self.settings, self.job.rank
        taught = self.teach(batch)
        target, weight = (cut_mix(x, batch.patched, rank) for x in (taught.target, taught.weight))

        features = self.segmenter.features(torch.cat([batch.images, batch.strong]))
        logits = self.segmenter.classify(features, batch.images.shape[-2:])
        labelled, unlabelled = logits.split([len(batch.images), len(batch.strong)])
        risen = (self.clock / s.rise).clamp(max=1) if s.rise else 1.0
        terms: list[tuple[float | Tensor, Total]] = [
            (1.0, labelled_loss(labelled, batch.labels, self.clock, s.hard_from)),
            # The mean is over all pixels in view: the fewer of them the teacher is sure of, the less they count.
            (s.consistency * risen, Total(*cross_entropy(unlabelled, target, weight > 0))),
        ]
        if s.contrast:
            fading = s.contrast * (1 + torch.cos(torch.pi * self.clock)) / 2
            labels = torch.cat([batch.labels, target])
            confidence = torch.cat([torch.ones_like(batch.labels, dtype=weight.dtype), weight])
            terms.append((fading, self.contrast(batch, taught, features, labels, confidence)))
        return self.weighted_sum(*terms)

    @torch.no_grad()
    def teach(self, batch: StitchViews) -> Taught:
        """Targets where the teacher's probabilities, joined with the labels that were carried, are sure."""
        teacher, unlabelled = self.outcome(), len(batch.weak)
        seen = batch.weak if batch.neighbours is None else torch.cat([batch.neighbours, batch.weak])
        features = teacher.features(seen)
        belief = teacher.classify(features[-unlabelled:], batch.weak.shape[-2:]).float().softmax(1)
        if self.settings.propagate:
            belief = join(belief, self.carried(features, batch))
        sure, known = belief.max(1)
        known = known.where((sure >= self.settings.confidence) & batch.in_frame, IGNORE)
        if self.settings.whole:
            belief = look_closer(belief, batch.places, batch.turned)
        sure, target = belief.max(1)
        weight = sure * (sure >= self.settings.confidence)
        return Taught(target.where(batch.in_view, IGNORE), weight, known, features)

    def carried(self, features: Tensor, batch: StitchViews) -> Tensor:
        """a · q at every pixel, B C H W: labels of the neighbours along the correspondence, and how far they count.

        A cell's q is the mean label of the cells most like it; a is `propagate` × the neighbour's nearness × whether
        the way back leads home, and 0 where the neighbour has no label.
        """
        s, c = self.settings, self.settings.correspondence
        assert batch.neighbour_labels is not None
        cells = self.coarse(features)
        neighbours, own = cells.split([len(cells) - len(batch.weak), len(batch.weak)])
        query, key = descriptors(own.repeat_interleave(c.neighbours, 0), neighbours)
        alike = affinity(query, key, max(1, round(c.radius * max(own.shape[-2:]))))
        labels = carry(alike, to_cells(batch.neighbour_labels, self.classes, self.cell), c.top, c.temperature)
        say = comes_back(alike, own, c.cycle) * batch.nearness.flatten()[:, None, None]
        # Of two neighbours, each has its part of what the one with more to say has.
        say, labels = (x.unflatten(0, (-1, c.neighbours)) for x in (say, labels))
        share = say * say.amax(1, keepdim=True) / say.sum(1, keepdim=True).clamp(min=1e-12)
        carried = s.propagate * (share[:, :, None] * labels).sum(1)
        return from_cells(carried, self.cell, batch.weak.shape[-2:])

    def contrast(
        self, batch: StitchViews, taught: Taught, features: Tensor, labels: Tensor, confidence: Tensor
    ) -> Total:
        """The student's pixels against the class sums of the teacher's, of the batch and of other cases' frames."""
        e = self.settings.embedding
        assert batch.neighbour_labels is not None
        key_labels = at_cells(torch.cat([batch.neighbour_labels, taught.known]), self.cell)
        keys = class_sums(self.key_projector(self.coarse(taught.features)), key_labels, self.classes)
        keys = ClassSums(*map(all_gather, keys))
        shown = (keys.counts.sum(1) > 0).float()  # a key frame without labels is none
        against = contrasts(keys, shown.expand(len(features), -1))
        if self.bank is not None:
            against = against + self.bank.expected(torch.cat([batch.labelled_numbers, batch.numbers]), e.bank)
            # Weak views last: a frame without a neighbour stands for it, and its own labels must be what remains.
            self.bank.put(all_gather(torch.cat([batch.neighbour_numbers, batch.numbers])), keys)
        loss, total = pixel_contrast(
            self.projector(self.coarse(features)),
            at_cells(labels, self.cell),
            against,
            temperature=e.temperature,
            class_balanced=e.class_balanced,
            confidence=at_cells(confidence, self.cell),
            negatives="mean",
            all_sum=all_sum,
        )
        return Total(loss, total)

    def coarse(self, features: Tensor) -> Tensor:
        """Features on the grid of cells."""
        factor = self.cell // self.segmenter.stride
        return F.avg_pool2d(features, factor, ceil_mode=True) if factor > 1 else features

    def after_step(self) -> None:
        if self.settings.contrast:
            self.key_projector.update(self.projector, self.average_momentum)
