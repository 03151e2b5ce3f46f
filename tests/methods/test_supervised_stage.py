"""Supervised training learns its labelled frames, and nothing from pixels that have no label."""

from collections import Counter

from stage_tester import Build
from torch import Tensor

from suture.data.classes import IGNORE
from suture.methods.stage import Part, TrainingSettings
from suture.methods.supervised import Supervised


def test_visits_only_labelled_frames_each_once_an_epoch(tiny_context: Build) -> None:
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


def test_pixels_outside_the_view_teach_nothing(tiny_context: Build) -> None:
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
