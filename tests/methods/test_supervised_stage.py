"""Supervised training learns its labelled frames, and nothing from pixels that have no label."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from stage_tester import EASY, QUICK, train_accuracy
from torch import Tensor

from suture.data.classes import IGNORE
from suture.losses.hard_pixels import hard_pixels
from suture.methods.method import find_method
from suture.methods.stage import Part, StageContext, TrainingSettings
from suture.methods.supervised import Supervised


@pytest.mark.parametrize("loss", [None, hard_pixels])
def test_overfits_a_few_frames(tiny_context: Callable[..., StageContext], fit: Any, loss: Any) -> None:
    context = tiny_context({"a": 2, "b": 2}, every=1, stored=(32, 32), architecture="linknet")
    settings = TrainingSettings(
        steps=45,
        batch=4,
        optimizer=QUICK,
        augment=EASY,
    )
    before = train_accuracy(context.segmenter, context)
    stage = Supervised("train", settings) if loss is None else Supervised("train", settings, loss)
    fit(stage, context)
    assert before < 0.8
    assert train_accuracy(context.segmenter, context) > 0.9


def test_visits_only_labelled_frames_each_once_an_epoch(tiny_context: Callable[..., StageContext]) -> None:
    context = tiny_context({"a": 7, "b": 5}, every=2, excluded={"b": [2]}, numbered=True)
    stage = Supervised("train", TrainingSettings(steps=6, batch=2, augment={"color": "none"}))
    stage.begin(context)
    assert stage.epoch_frames == len(context.frames.labelled) == 6
    for epoch in range(2):
        seen = []
        for step in range(3 * epoch, 3 * epoch + 3):
            images, _ = stage.render(stage.draw(Part(step, range(2), range(2))))
            seen += (images.mean((1, 2, 3)) * 25.5).round().int().tolist()
        assert Counter(seen) == Counter(context.frames.labelled.tolist())


def test_on_all_frames_pseudo_labels_stand_for_the_truth(tiny_context: Callable[..., StageContext]) -> None:
    context = tiny_context({"a": 4, "b": 4}, every=2, numbered=True)
    context.frames.pseudo = {number: np.full((8, 8), 1, np.uint8) for number in context.frames.unlabelled.tolist()[:-1]}
    stage = Supervised("train", TrainingSettings(batch=8, augment={"color": "none"}), on="all")
    stage.begin(context)
    images, labels = stage.render(stage.draw(Part(0, range(8), range(8))))
    numbers = (images.mean((1, 2, 3)) * 25.5).round().int().tolist()
    assert sorted(numbers) == list(range(8))
    for number, seen in zip(numbers, labels, strict=True):
        if number in context.frames.pseudo:
            assert (seen == 1).all()
        elif number in context.frames.labelled:
            assert seen.unique().numel() > 1
        else:
            assert (seen == IGNORE).all()


def test_pixels_outside_the_view_teach_nothing(tiny_context: Callable[..., StageContext]) -> None:
    context = tiny_context(round_view=True, every=1)
    stage = Supervised("train", TrainingSettings(batch=4, augment={"crop": (1.0, 1.0)}))
    stage.begin(context)
    images, labels = stage.render(stage.draw(Part(0, range(4), range(4))))
    assert 0.1 < (labels == IGNORE).float().mean() < 0.9
    logits: list[Tensor] = []
    context.segmenter.register_forward_hook(lambda module, args, out: (out.retain_grad(), logits.append(out))[0])
    total = stage.loss((images, labels))
    total.loss.backward()
    gradient = logits[0].grad.abs().sum(1)
    assert total.weight == (labels != IGNORE).sum()
    assert (gradient[labels == IGNORE] == 0).all()
    assert (gradient[labels != IGNORE] > 0).all()


def test_the_baseline_has_as_many_supervised_steps_as_pgvcl() -> None:
    baseline, pgvcl = (find_method(name).Settings() for name in ("supervised", "pgvcl"))
    assert baseline.train.steps == pgvcl.pretrain.steps + pgvcl.finetune.steps
