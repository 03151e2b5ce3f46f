"""Self-training: pseudo labels are learnt as if they were true."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from stage_tester import Build, StageTester, supervised_steps

from suture.data.classes import IGNORE
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.selftraining import SelfTraining
from suture.methods.stage import Part, Stage, StageContext, TrainingSettings
from suture.methods.supervised import Supervised


def with_labels(context: StageContext) -> StageContext:
    """The context with pseudo labels: class `number % 3` all over a frame's view."""
    outside = {n: context.frames.in_view(n) == IGNORE for n in context.frames.unlabelled.tolist()}
    context.frames.pseudo = {n: np.where(ignored, IGNORE, n % 3).astype(np.uint8) for n, ignored in outside.items()}
    return context


class TestOnAllFrames(StageTester):
    @pytest.fixture
    def tiny_context(self, tiny_context: Build) -> Build:
        return lambda **options: with_labels(tiny_context(**options))

    def make(self, **settings: Any) -> Stage:
        return Supervised("train", TrainingSettings(batch=4, **settings), on="all")


def stages(**settings: Any) -> list[Any]:
    return list(SelfTraining(SelfTraining.Settings(**settings)).stages())


def test_stages() -> None:
    pretrain, pseudo, train = stages()
    assert isinstance(pseudo, PseudoLabels)
    assert [pretrain.on, train.on] == ["labelled", "all"]
    assert all(stage.start_from is None for stage in (pretrain, pseudo, train))
    assert supervised_steps("selftraining") == supervised_steps("supervised")


def test_every_frame_is_visited_once_an_epoch_with_truth_or_pseudo_label(tiny_context: Build) -> None:
    context = with_labels(tiny_context(numbered=True))
    train = stages(train={"batch": 4, "augment": {"color": "none"}})[-1]
    train.begin(context)
    assert train.epoch_frames == len(context.frames) == 12
    seen: Counter[int] = Counter()
    for step in range(3):
        images, labels = train.render(train.draw(Part(step, range(4), range(4))))
        numbers = (images.mean((1, 2, 3)) * 25.5).round().int().tolist()
        seen += Counter(numbers)
        for number, found in zip(numbers, labels, strict=True):
            if number in context.frames.pseudo:
                assert (found == number % 3).all()
            else:
                assert len(found.unique()) > 1  # the painted truth
    assert seen == Counter(range(12))
