"""Strong: supervised training with strong views of the labelled frames, the control of `stitch`.

Rare classes are drawn more often, colours are changed strongly or taken from other cases, and patches are exchanged
(CutMix). The final model is an average of the weights. No unlabelled frame is needed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from suture.core.settings import Settings
from suture.data.classes import IGNORE
from suture.data.sampling.augment import (
    COLORS,
    Augment,
    Layer,
    Patches,
    color_statistics,
    cut_layer,
    draw_view,
    move_onto,
    recolor,
    render_labels,
    render_nearest,
    resample,
    restyle,
)
from suture.data.sampling.frames import Epochs
from suture.losses.cross_entropy import cross_entropy
from suture.methods.cutmix import cut_mix, draw_patch, in_boxes
from suture.methods.method import Method
from suture.methods.stage import OneStageSettings, Part, Stage, Total, all_gather


class StrongSettings(OneStageSettings):
    """Settings of strong views, with as many steps as the baseline; a share of 0 switches its part off."""

    ema: float = Field(0.996, ge=0, lt=1)
    """Momentum of the average of the weights; 0 keeps the last weights."""
    augment: Augment = Augment(tilt=30)
    strong: Augment = Augment(tilt=30, color=COLORS["strong"])
    """Crop, tilt, flip and colours of strong views; `augment` has those of the others."""
    strong_labelled: float = Field(0.5, ge=0, le=1)
    """Share of labelled views that are strong."""
    restyle: float = Field(0.5, ge=0, le=1)
    """Share of strong views with the colour statistics of another frame, of another case if there is one."""
    cutmix: float = Field(0.5, ge=0, le=1)
    """Share of views with a patch of another frame."""
    rare: float = Field(0.2, ge=0, le=1)
    """Share of labelled views that are drawn by class, uniformly, and show a pixel of it."""


class StrongOnly(Method):
    """Strong views of the labelled frames alone, in one stage."""

    class Settings(Settings):
        train: StrongSettings = StrongSettings()

    def stages(self) -> Iterator[Stage]:
        yield Strong("train", self.settings.train)


class StrongBatch(NamedTuple):
    """Labelled views from the loader."""

    views: Patches
    in_view: Layer
    """0 inside the view of the video, `IGNORE` outside."""
    donors: Tensor
    """B: positions, in the batch of all processes, of the samples whose colour statistics the views take."""
    boxes: Tensor
    """B 4: patches of other frames."""


class StrongViews:
    """Choice and augmentation of the labelled frames of a step."""

    def __init__(self, stage: Stage, settings: StrongSettings) -> None:
        self.stage, self.settings, self.frames = stage, settings, stage.context.frames
        self.cases = self.frames.cases
        self.frames.in_view(0)  # once here, not in each of the loader's workers
        self.order = Epochs(self.frames.labelled, stage.context.seed, stage.name)
        self.showing = self._by_class() if settings.rare else {}

    def _by_class(self) -> dict[int, list[int]]:
        """Labelled frames of each class that any of them shows."""
        showing: dict[int, list[int]] = {}
        for number in self.frames.labelled.tolist():
            for shown in self.frames.shows(number):
                showing.setdefault(shown, []).append(number)
        return showing

    def turn(self, step: int, place: int) -> tuple[int, int | None]:
        """Frame at a place of a step, and the class that it was drawn for."""
        rng = self.stage.rng(step, f"turn {place}")
        if self.showing and rng.random() < self.settings.rare:
            shown = int(rng.choice(sorted(self.showing)))
            return int(rng.choice(self.showing[shown])), shown
        return self.order[step * self.settings.batch + place], None

    def draw(self, part: Part) -> StrongBatch:
        s = self.settings
        numbers = [self.turn(part.step, place)[0] for place in part.all]
        own, draws, donors, boxes = [], [], [], []
        for place in part.own:
            number, shown = self.turn(part.step, place)
            rng = self.stage.rng(part.step, place)
            strong = rng.random() < s.strong_labelled
            draw = draw_view(rng, s.strong if strong else s.augment)
            if shown is not None:
                labels = self.frames.labels(number)
                assert labels is not None
                # flatnonzero is several times faster than argwhere.
                row, column = divmod(int(rng.choice(np.flatnonzero(labels == shown))), labels.shape[1])
                draw = move_onto(draw, (column + 0.5) / labels.shape[1], (row + 0.5) / labels.shape[0], rng)
            own.append(number)
            draws.append(draw)
            donors.append(draw_donor(rng, place - part.all.start, self.cases[numbers], s.restyle if strong else 0))
            boxes.append(draw_patch(rng, s.cutmix))
        return StrongBatch(
            self.frames.collate(own, draws),
            cut_layer(draws, [self.frames.in_view(n) for n in own], [self.frames.image(n) for n in own]),
            torch.tensor(donors),
            torch.from_numpy(np.array(boxes, np.float32)),
        )

    def render(self, batch: StrongBatch) -> tuple[Tensor, Tensor]:
        """Render images and labels."""
        size, rank = self.stage.context.size, self.stage.context.rank
        inside = render_nearest(batch.in_view, batch.views.flip, size) != IGNORE
        images = strengthen(resample(batch.views, size), inside, batch.donors, batch.views.color)
        labels, patched = render_labels(batch.views, size), in_boxes(batch.boxes, size)
        return cut_mix(images, patched, rank), cut_mix(labels, patched, rank)


class Strong(Stage):
    """Cross entropy on strong views of the labelled frames."""

    settings: StrongSettings
    labels_alone = True

    def prepare(self) -> int:
        self.views = StrongViews(self, self.settings)
        return len(self.context.frames.labelled)

    def draw(self, part: Part) -> StrongBatch:
        return self.views.draw(part)

    def render(self, batch: StrongBatch) -> tuple[Tensor, Tensor]:
        return self.views.render(batch)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Total:
        images, labels = batch
        return Total(*cross_entropy(self.segmenter(images), labels))


def draw_donor(rng: np.random.Generator, own: int, cases: np.ndarray, share: float) -> int:
    """Draw the position in a batch whose colours a view takes: its own, except in a share of draws.

    Args:
        cases: Case of every position; other cases are preferred.
    """
    others = np.flatnonzero(cases != cases[own])
    if not len(others):
        others = np.delete(np.arange(len(cases)), own)
    return int(rng.choice(others)) if rng.random() < share and len(others) else own


def strengthen(images: Tensor, inside: Tensor, donors: Tensor, color: Tensor) -> Tensor:
    """Give views the colour statistics of their donors, then change their colours."""
    own = color_statistics(images, inside)
    return recolor(restyle(images, inside, own, all_gather(own)[donors]), color)
