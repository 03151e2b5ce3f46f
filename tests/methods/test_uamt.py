"""UA-MT: the student follows its teacher, where the teacher is certain and nowhere else."""

import math
from typing import Any

import pytest
import torch
from stage_tester import Build, StageTester

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.methods.stage import Part, StageContext
from suture.methods.uamt import WITH_DROPOUT, UncertaintyAware, UncertaintyBatch, UncertaintySettings, ramp
from suture.models.segmenter import build_segmenter, set_dropout

WHOLE = Part(0, range(4), range(4))


class TestUncertaintyAware(StageTester):
    def make(self, **settings: Any) -> UncertaintyAware:
        # Without noise two processes see the same; with more consistency it has a say in the first steps.
        return UncertaintyAware("train", UncertaintySettings(batch=4, noise=0, passes=2, consistency=500, **settings))


def begun(context: StageContext, **settings: Any) -> UncertaintyAware:
    stage = UncertaintyAware("train", UncertaintySettings(steps=10, batch=4, passes=2, **settings))
    stage.begin(context)
    return stage


def test_loss_is_the_paper_s(tiny_context: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross entropy + λ(t) Σ mask (p_s − p_t)² / (C Σ mask), with mask = U < (0.75 + 0.25 r) ln C, at step 6 of 10."""
    stage = begun(tiny_context(round_view=True), unlabelled_batch=8)
    set_dropout(stage, active=False)  # the student's prediction can then be had twice
    stage.segmenter.eval()
    stage.clock.fill_(6 / 10)
    generator = torch.Generator().manual_seed(0)
    passes = [(3 * torch.randn(8, 3, 32, 32, generator=generator)).softmax(1) for _ in range(3)]
    calls = iter(passes)
    monkeypatch.setattr(stage, "stochastic_pass", lambda images: next(calls))
    batch = stage.render(stage.draw(WHOLE))
    (images, labels), (unlabelled, in_view) = batch
    total = stage.loss(batch)

    r = math.exp(-5 * (1 - 6 / 10) ** 2)
    target, mean = passes[0], (passes[1] + passes[2]) / 2
    uncertainty = -(mean * mean.log()).sum(1)
    mask = (uncertainty < (0.75 + 0.25 * r) * math.log(3)) & (in_view != IGNORE)
    assert 0.1 < mask.float().mean() < 0.9 * (in_view != IGNORE).float().mean()
    difference = ((stage.segmenter(unlabelled).softmax(1) - target) ** 2).sum(1)
    consistency = difference[mask].sum() / (3 * mask.sum())
    supervised = torch.nn.functional.cross_entropy(stage.segmenter(images), labels, ignore_index=IGNORE)
    torch.testing.assert_close(total.loss / total.weight, supervised + 0.1 * r * consistency)


def test_a_teacher_that_is_certain_of_nothing_leaves_the_supervised_loss(
    tiny_context: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = begun(tiny_context(), consistency=500)
    set_dropout(stage, active=False)
    monkeypatch.setattr(stage, "stochastic_pass", lambda images: torch.full((len(images), 3, 32, 32), 1 / 3))
    batch = stage.render(stage.draw(WHOLE))
    total = stage.loss(batch)
    images, labels = batch.labelled
    supervised = torch.nn.functional.cross_entropy(stage.segmenter(images), labels, ignore_index=IGNORE)
    torch.testing.assert_close(total.loss / total.weight, supervised)
    assert total.taught == 0


def test_unlabelled_frames_do_not_change_how_labelled_ones_are_normalised(tiny_context: Build) -> None:
    stage = begun(tiny_context(), consistency=0)
    set_dropout(stage, active=False)
    labelled, (unlabelled, in_view) = stage.render(stage.draw(WHOLE))
    batches = (UncertaintyBatch(labelled, (other, in_view)) for other in (unlabelled, 1 - unlabelled))
    found = [stage.loss(batch).loss for batch in batches]
    torch.testing.assert_close(*found)


def test_the_teacher_drops_units_and_sees_noise_but_no_gradient(tiny_context: Build) -> None:
    stage = begun(tiny_context())
    images = torch.rand(2, 3, 32, 32)
    one, other = stage.stochastic_pass(images), stage.stochastic_pass(images)
    assert not torch.equal(one, other)
    assert not one.requires_grad
    set_dropout(stage, active=False)
    assert not torch.equal(stage.stochastic_pass(images), stage.stochastic_pass(images))  # the noise is left
    seen = []
    stage.teacher.module.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    stage.stochastic_pass(images)
    noise = (seen[0] - images) / stage.segmenter.std
    assert noise.abs().max() <= 0.2 + 1e-6
    assert noise.std().item() == pytest.approx(0.1, rel=0.1)


def test_the_teacher_follows_the_student(tiny_context: Build, fit: Any) -> None:
    """α = min(1 − 1/(step+1), 0.99): at first the plain mean of the student's weights after each step."""
    seen = []

    class Stage(UncertaintyAware):
        def after_step(self) -> None:
            seen.append(self.segmenter.head.classifier.weight.detach().clone())
            super().after_step()

    stage = Stage("train", UncertaintySettings(steps=3, batch=4, passes=1))
    fit(stage, tiny_context())
    torch.testing.assert_close(stage.teacher.module.head.classifier.weight, torch.stack(seen).mean(0))
    assert stage.outcome() is stage.segmenter
    assert stage.teacher.module.training


def test_draws_labelled_frames_as_the_baseline_and_only_unlabelled_beside_them(tiny_context: Build) -> None:
    context = tiny_context(numbered=True)
    stage = begun(context, unlabelled_batch=8, augment={"color": "none"})
    batch = stage.render(stage.draw(WHOLE))
    labelled, unlabelled = ((images.mean((1, 2, 3)) * 25.5).round().int().tolist() for images, _ in batch)
    assert sorted(labelled) == context.frames.labelled.tolist()
    assert sorted(unlabelled) == context.frames.unlabelled.tolist()


def test_needs_an_architecture_with_dropout() -> None:
    stage = UncertaintyAware("train", UncertaintySettings())
    for architecture in WITH_DROPOUT:
        stage.validate_segmenter(build_segmenter(architecture, "tu-test_resnet"))
    with pytest.raises(UserError, match=r"unet with tu-test_resnet has none: set model.architecture to .*deeplabv3"):
        stage.validate_segmenter(build_segmenter("unet", "tu-test_resnet"))


@pytest.mark.parametrize(
    ("architecture", "encoder"),
    [
        ("segformer", "mit_b0"),  # stochastic depth, and dropout that is switched off
        ("unet", "efficientnet-b0"),  # stochastic depth, and dropout of a classifier that is not there
        ("upernet", "tu-convnext_atto"),
        ("unet", "tu-sam2_hiera_tiny"),
    ],
)
def test_dropout_that_encoders_only_hold_does_not_count(architecture: str, encoder: str) -> None:
    segmenter = build_segmenter(architecture, encoder, classes=2)
    assert any(isinstance(module, torch.nn.Dropout) for module in segmenter.modules())
    assert not segmenter.has_active_dropout


def test_ramp() -> None:
    assert ramp(torch.tensor([0.0, 0.5, 1.0])).tolist() == pytest.approx([math.exp(-5), math.exp(-1.25), 1])
