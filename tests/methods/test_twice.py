"""Twice: what PGV-CL does, without the contrast."""

from typing import Any

import torch
from stage_tester import StageTester, supervised_steps

from suture.losses.hard_pixels import hard_pixels
from suture.methods.method import find_method
from suture.methods.stage import Stage
from suture.methods.supervised import OhemSettings, finetune
from suture.methods.twice import Twice


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
