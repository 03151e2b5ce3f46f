"""Twice: what PGV-CL does, without the contrast."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from stage_tester import EASY, QUICK, StageTester, supervised_steps, train_accuracy

from suture.losses.hard_pixels import hard_pixels
from suture.methods.method import find_method
from suture.methods.stage import Stage, StageContext
from suture.methods.supervised import OhemSettings, Twice, finetune


class TestFinetune(StageTester):
    def make(self, **settings: Any) -> Stage:
        return finetune(OhemSettings(batch=4, **settings))


def test_is_pgvcl_without_what_lies_between() -> None:
    twice, pgvcl = Twice.Settings(), find_method("pgvcl").Settings()
    assert twice.model_dump() == pgvcl.model_dump(include={"pretrain", "finetune"})
    stages = [
        [(type(stage), stage.name) for stage in find_method(name)(settings).stages()]
        for name, settings in (("twice", twice), ("pgvcl", pgvcl))
    ]
    assert stages[0] == [stages[1][0], stages[1][-1]]
    assert supervised_steps("twice") == supervised_steps("supervised")


def test_fine_tuning_learns_from_hard_pixels_as_the_settings_say() -> None:
    stage = finetune(OhemSettings(threshold=0.6, keep=0.25))
    logits = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(2, 8, 8, dtype=torch.long)
    assert stage.pixel_loss(logits, labels) == hard_pixels(logits, labels, threshold=0.6, keep=0.25)
    assert stage.pixel_loss(logits, labels) != hard_pixels(logits, labels)


def test_overfits_a_few_frames(tiny_context: Callable[..., StageContext], fit: Any) -> None:
    context = tiny_context({"a": 2, "b": 2}, every=1, stored=(32, 32))
    before = train_accuracy(context.segmenter, context)
    shared = {"batch": 4, "optimizer": QUICK, "augment": EASY}
    for stage in Twice(Twice.Settings(pretrain={"steps": 25, **shared}, finetune={"steps": 15, **shared})).stages():
        fit(stage, context)
        context.segmenter = stage.outcome()
    assert before < 0.8
    assert train_accuracy(context.segmenter, context) > 0.9


@pytest.mark.parametrize("wrong", [{"threshold": 1.0}, {"keep": 0.0}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        OhemSettings(**wrong)
