"""UniMatch V2: strong views learn what the teacher says of weak ones, where it is sure."""

from dataclasses import replace
from typing import Any

import torch
from stage_tester import Build, StageTester
from torch import Tensor
from torch.nn import functional as F

from suture.data.classes import IGNORE
from suture.methods.stage import Part, StageContext
from suture.methods.unimatch import UniMatchSettings, WeakToStrong
from suture.models.segmenter import Segmenter, build_segmenter, set_dropout

WHOLE = Part(0, range(4), range(4))


class TestWeakToStrong(StageTester):
    def make(self, **settings: Any) -> WeakToStrong:
        return WeakToStrong("train", UniMatchSettings(batch=4, confidence=0, **settings))


def begun(context: StageContext, **settings: Any) -> WeakToStrong:
    stage = WeakToStrong("train", UniMatchSettings(**{"steps": 10, "batch": 4} | settings))
    stage.begin(context)
    return stage


def test_loss_is_the_paper_s(tiny_context: Build) -> None:
    """(L_sup + (L_s1 + L_s2) / 2) / 2, sample by sample and pixel by pixel."""
    stage = begun(tiny_context(round_view=True), confidence=0.55, cutmix=1.0)
    stage.teacher.module.head.classifier.weight.mul_(1000)  # a teacher that is sure of some pixels
    set_dropout(stage, active=False)
    stage.segmenter.eval()
    batch = stage.render(stage.draw(WHOLE))
    with torch.no_grad():
        total = stage.loss(batch)
        (images, labels), (weak, in_view) = batch.labelled, batch.weak
        probabilities = stage.teacher(weak).softmax(1)
        terms = []
        for view in range(2):
            loss, pixels, kept = 0.0, 0, 0
            for i in range(4):
                left, top, right, bottom = (batch.boxes[view, i] * 32).tolist()
                image, belief, seen = batch.strong[view, i].clone(), probabilities[i].clone(), in_view[i].clone()
                for y in range(32):
                    for x in range(32):
                        if left <= x + 0.5 < right and top <= y + 0.5 < bottom:
                            image[:, y, x] = batch.strong[view, i - 1, :, y, x]
                            belief[:, y, x] = probabilities[i - 1, :, y, x]
                            seen[y, x] = in_view[i - 1, y, x]
                losses = -dropped(stage.segmenter, image, batch.channels[view, i]).log_softmax(0)
                losses = losses.gather(0, belief.argmax(0)[None])[0]
                sure = (belief.amax(0) >= 0.55) & (seen != IGNORE)
                loss, pixels, kept = loss + losses[sure].sum(), pixels + (seen != IGNORE).sum(), kept + sure.sum()
            assert 0.05 * pixels < kept < 0.95 * pixels
            terms.append(loss / pixels)
        supervised = F.cross_entropy(stage.segmenter(images), labels, ignore_index=IGNORE)
    torch.testing.assert_close(total.loss / total.weight, (supervised + sum(terms) / 2) / 2, rtol=1e-4, atol=1e-5)


def test_a_teacher_that_is_sure_of_nothing_leaves_half_of_the_supervised_loss(tiny_context: Build) -> None:
    stage = begun(tiny_context(), confidence=1)
    set_dropout(stage, active=False)
    batch = stage.render(stage.draw(WHOLE))
    total = stage.loss(batch)
    images, labels = batch.labelled
    supervised = F.cross_entropy(stage.segmenter(images), labels, ignore_index=IGNORE)
    torch.testing.assert_close(total.loss / total.weight, supervised / 2)
    assert total.taught == 0


def dropped(segmenter: Segmenter, image: Tensor, factors: Tensor) -> Tensor:
    """The logits C H W of an image where every channel of every level of the encoder is multiplied, one by one."""
    levels = segmenter.encoder((image[None] - segmenter.mean) / segmenter.std)
    flat = iter(factors.tolist())
    levels = [torch.stack([plane * next(flat) for plane in level[0]])[None] for level in levels]
    assert next(flat, None) is None
    return segmenter.classify(segmenter.decoder(levels), image.shape[-2:])[0]


def test_views_of_a_frame_share_their_geometry_and_differ_in_colour(tiny_context: Build) -> None:
    plain = {"crop": (0.5, 1.0), "color": "none"}
    stage = begun(tiny_context(), strong=plain)
    batch = stage.render(stage.draw(WHOLE))
    torch.testing.assert_close(batch.strong, batch.weak[0].expand(2, -1, -1, -1, -1))

    stage = begun(tiny_context(), strong=plain | {"color": "strong"})
    strong = stage.render(stage.draw(WHOLE))
    assert torch.equal(strong.weak[0], batch.weak[0])
    moved = (strong.strong - batch.weak[0]).abs().amax((2, 3, 4)) > 0.02
    assert moved.sum() >= 5  # some draws leave the colours alone
    assert (strong.strong[0] - strong.strong[1]).abs().amax((1, 2, 3)).min() > 0.02


def test_channels_are_dropped_by_one_of_the_views_in_half_of_the_samples(tiny_context: Build) -> None:
    stage = begun(tiny_context({"a": 12}), batch=2, unlabelled_batch=8)
    first, second = stage.draw(Part(0, range(2), range(2))).channels
    assert first.shape == (8, sum(stage.segmenter.encoder.out_channels))
    assert torch.equal(first + second, torch.full_like(first, 2.0))
    undropped = (first == 1).all(1)
    assert undropped.sum() == 4
    assert set(first[~undropped].unique().tolist()) == {0.0, 2.0}
    assert 0.4 < first[~undropped].mean() / 2 < 0.6


def test_all_levels_of_a_vision_transformer_drop_the_same_channels(tiny_context: Build) -> None:
    stage = begun(replace(tiny_context(), segmenter=build_segmenter("dpt", "tu-test_vit", classes=3)))
    levels = stage.draw(WHOLE).channels.unflatten(2, (4, -1))
    assert torch.equal(levels, levels[:, :, :1].expand_as(levels))


def test_uses_only_unlabelled_frames_for_its_views(tiny_context: Build) -> None:
    context = tiny_context(numbered=True)
    stage = begun(context, batch=2, unlabelled_batch=8)
    batch = stage.render(stage.draw(Part(0, range(2), range(2))))
    numbers = (batch.weak[0].mean((1, 2, 3)) * 25.5).round().int().tolist()
    assert sorted(numbers) == context.frames.unlabelled.tolist()


def test_the_teacher_is_an_average_that_predicts_as_in_inference(tiny_context: Build, fit: Any) -> None:
    context = tiny_context()
    stage = WeakToStrong("train", UniMatchSettings(steps=2, batch=4))
    fit(stage, context)
    assert not stage.teacher.training
    assert not any(module.training for module in stage.teacher.modules())
    assert context.segmenter.training
    norm, student = (module.head.bn.running_mean for module in (stage.teacher.module, context.segmenter))
    assert not torch.equal(norm, student)  # buffers are averaged too
    assert norm.abs().sum() > 0
