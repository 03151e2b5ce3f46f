"""Stitch: what each part adds, against slow and obvious versions; and that parts can be left out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from stage_tester import EASY, QUICK, StageTester, supervised_steps, train_accuracy
from torch import Tensor
from torch.nn import functional as F

from suture.data.classes import IGNORE
from suture.losses.pixel_contrast import ClassSums, class_sums
from suture.methods import stitch
from suture.methods.stage import Job, Part
from suture.methods.stitch import Stitch, StitchSettings, StitchViews
from suture.models.segmenter import set_dropout

WHOLE = Part(0, range(4), range(4))
SMALL = {"hidden": 16, "channels": 8, "bank": 3}


class TestStitch(StageTester):
    def make(self, **settings: Any) -> Stitch:
        return Stitch("train", StitchSettings(batch=4, confidence=0.5, embedding=SMALL, **settings))


def begun(job: Job, **settings: Any) -> Stitch:
    # Unless said, teacher and student see the same: what one of them is shown can be asked of the other.
    stage = Stitch("train", StitchSettings(**{"steps": 10, "batch": 4, "embedding": SMALL, "whole": False} | settings))
    stage.begin(job)
    return stage


def still(stage: Stitch) -> Stitch:
    """Without what makes two passes of the same images differ."""
    set_dropout(stage, active=False)
    stage.segmenter.eval()
    return stage


def test_overfits_a_few_frames(tiny_job: Callable[..., Job], fit: Any) -> None:
    job = tiny_job({"a": 4, "b": 4}, every=2, stored=(32, 32), architecture="linknet")
    before = train_accuracy(job.segmenter, job)
    job.segmenter.train()
    stage = Stitch(
        "train",
        StitchSettings(steps=45, batch=4, optimizer=QUICK, augment=EASY, confidence=0.8, ema=0.8, embedding=SMALL),
    )
    fit(stage, job)
    assert before < 0.8
    assert train_accuracy(stage.outcome(), job) > 0.9
    assert stage.outcome() is stage.average.module
    assert not stage.average.training
    assert not stage.key_projector.training


@pytest.mark.parametrize(
    "off", ["consistency", "propagate", "contrast", "restyle", "cutmix", "rare", "strong_labelled"]
)
def test_every_part_can_be_left_out(off: str, tiny_job: Callable[..., Job]) -> None:
    stage = begun(tiny_job(), **{off: 0})
    loss, _ = stage.step(stage.render(stage.draw(WHOLE)))
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in stage.parameters() if p.requires_grad)


def test_the_bare_recipe_needs_no_neighbours(tiny_job: Callable[..., Job]) -> None:
    stage = begun(tiny_job(), propagate=0, contrast=0)
    assert stage.draw(WHOLE).neighbours is None
    assert stage.step(stage.render(stage.draw(WHOLE)))[0].isfinite()
    assert not hasattr(stage, "projector")


def test_loss_is_labels_and_consistency(tiny_job: Callable[..., Job]) -> None:
    """Without video and contrast, sample by sample and pixel by pixel."""
    stage = begun(tiny_job(round_view=True), confidence=0.55, cutmix=1, propagate=0, contrast=0)
    stage.average.module.classifier.head.weight.mul_(1000)  # a teacher that is sure of some pixels
    batch = still(stage).render(stage.draw(WHOLE))
    with torch.no_grad():
        total = stage.loss(batch)
        supervised = F.cross_entropy(stage.segmenter(batch.images), batch.labels, ignore_index=IGNORE)
        belief, predicted = stage.average(batch.weak).softmax(1), stage.segmenter(batch.strong).log_softmax(1)
        loss, pixels, kept = 0.0, 0, 0
        for i in range(4):
            for y in range(32):
                for x in range(32):
                    source = 3 - i if batch.patched[i, y, x] else i
                    if batch.in_view[source, y, x]:
                        pixels += 1
                        sure, label = belief[source, :, y, x].max(0)
                        if sure >= 0.55:
                            loss, kept = loss - predicted[i, label, y, x], kept + 1
    assert 0.05 * pixels < kept < 0.95 * pixels
    torch.testing.assert_close(total.loss / total.weight, supervised + loss / pixels, rtol=1e-4, atol=1e-5)


def test_what_the_teacher_says_counts_more_and_more(tiny_job: Callable[..., Job]) -> None:
    stage = begun(tiny_job(), confidence=0, contrast=0, rise=0.5, consistency=2.0)
    batch = still(stage).render(stage.draw(WHOLE))

    @torch.no_grad()
    def loss(clock: float) -> Tensor:
        stage.clock.fill_(clock)
        total = stage.loss(batch)
        return total.loss / total.weight

    labels, risen = loss(0), loss(0.499999)  # at 0.5 hard pixels begin
    assert risen > labels + 0.1
    torch.testing.assert_close(loss(0.25) - labels, (risen - labels) / 2, rtol=1e-3, atol=1e-5)


def test_a_teacher_that_sees_whole_frames_speaks_of_the_student_s_view(tiny_job: Callable[..., Job]) -> None:
    """Where the student looks, it says what it says of the whole frame there."""
    stage = begun(tiny_job(), confidence=0, contrast=0, propagate=0, whole=True, strong={"crop": (0.5, 0.5)})
    drawn = stage.draw(WHOLE)
    batch = still(stage).render(drawn)
    belief = stage.average(batch.weak).softmax(1)
    target = stage.teach(batch).target
    agreed = []
    for i, ((x, y, side, _), flip) in enumerate(
        zip((drawn.places * 32).tolist(), drawn.views.flip.tolist(), strict=True)
    ):
        for row in range(32):
            for column in range(32):
                along = 31 - column if flip else column
                here = belief[i, :, int(y + (row + 0.5) / 32 * side), int(x + (along + 0.5) / 32 * side)]
                agreed.append(bool(here.argmax() == target[i, row, column]))
    assert sum(agreed) > 0.95 * len(agreed)  # but for the edges between classes, which it interpolates


def moved(stage: Stitch, cells: int, nearness: float = 1.0) -> tuple[StitchViews, Tensor]:
    """Views of a scene that moved `cells` to the left between the labelled frame and the unlabelled one.

    Also the features that a perfect teacher would have, first of the neighbour, then of the weak view.
    """
    generator = torch.Generator().manual_seed(0)
    scene = torch.randn(1, 64, 4, 8, generator=generator)
    labels = torch.randint(0, 3, (1, 4, 4), generator=generator)
    features = torch.cat([scene[..., :4], scene[..., cells : cells + 4]])
    batch = stage.render(stage.draw(Part(0, range(1), range(1))))
    return batch._replace(
        neighbour_labels=labels.repeat_interleave(8, 1).repeat_interleave(8, 2), nearness=torch.tensor([[nearness]])
    ), features


@pytest.mark.parametrize("cells", [0, 1, 2])
def test_labels_follow_what_moved(cells: int, tiny_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stitch, "from_cells", lambda x, *_: x)  # as they are, before they are interpolated
    stage = begun(tiny_job(), batch=1, propagate=0.8, correspondence={"radius": 0.5, "top": 1, "cycle": 0})
    batch, features = moved(stage, cells, nearness=0.5)
    carried = stage.carried(features, batch)[0, :, :, : 4 - cells]
    truth = batch.neighbour_labels[0, ::8, ::8][:, cells:]
    torch.testing.assert_close(carried, 0.8 * 0.5 * F.one_hot(truth, 3).permute(2, 0, 1).float())


def test_carried_labels_join_the_teacher_s(tiny_job: Callable[..., Job]) -> None:
    stage = begun(tiny_job(), confidence=0, propagate=0.6)
    batch = still(stage).render(stage.draw(WHOLE))
    carried = torch.zeros(4, 3, 32, 32)
    carried[:2, 2] = 0.6
    stage.carried = lambda *_: carried  # type: ignore[method-assign]
    taught = stage.teach(batch)
    belief = stage.average(batch.weak).softmax(1)
    expected = belief[:2] * (torch.tensor([0.0, 0.0, 0.6]) + 0.4 / 3).view(3, 1, 1)
    expected /= expected.sum(1, keepdim=True)
    sure, target = torch.cat([expected, belief[2:]]).max(1)
    torch.testing.assert_close(taught.weight, sure)
    assert torch.equal(taught.target, target)


def test_nothing_is_carried_across_a_cut(tiny_job: Callable[..., Job]) -> None:
    job = tiny_job({"a": 6, "b": 6}, every=6)  # the second shot of each video has no label
    stage = begun(job, confidence=0, batch=8)
    batch = stage.render(stage.draw(Part(0, range(8), range(8))))
    alone = torch.tensor([job.shots[n] % 2 == 1 for n in batch.numbers.tolist()])
    assert 0 < alone.sum() < 8
    assert torch.equal(batch.nearness[:, 0] == 0, alone)
    assert (batch.neighbour_labels[alone] == IGNORE).all()
    features = torch.rand(16, stage.segmenter.features_channels, 4, 4)
    carried = stage.carried(features, batch)
    assert not carried[alone].any()
    assert carried[~alone].flatten(1).any(1).all()


def test_neighbours_are_cut_as_their_frames(tiny_job: Callable[..., Job]) -> None:
    job = tiny_job()
    for place in list(job.frames.pixels._frames):
        job.frames.pixels._frames[place] = job.frames.pixels._frames[place[0], 0]  # a video that stands still
    stage = begun(job, correspondence={"neighbours": 2})
    batch = stage.render(stage.draw(WHOLE))
    assert len(batch.neighbours) == 8
    torch.testing.assert_close(batch.neighbours, batch.weak.repeat_interleave(2, 0))


def test_two_neighbours_share_the_say(tiny_job: Callable[..., Job]) -> None:
    stage = begun(tiny_job(), batch=1, propagate=0.5, correspondence={"neighbours": 2, "top": 1})
    batch, features = moved(stage, 0)
    other = (batch.neighbour_labels + 1) % 3
    both = batch._replace(
        neighbour_labels=torch.cat([batch.neighbour_labels, other]), nearness=torch.tensor([[1.0, 0.25]])
    )
    carried = stage.carried(torch.cat([features[:1], features[:1], features[1:]]), both)[0, :, ::31, ::31]
    truth = batch.neighbour_labels[0, ::31, ::31]
    torch.testing.assert_close(carried.gather(0, truth[None]), torch.full((1, 2, 2), 0.5 * 0.8))
    torch.testing.assert_close(carried.gather(0, (truth[None] + 1) % 3), torch.full((1, 2, 2), 0.5 * 0.2))


def test_contrast_is_with_all_keys_of_the_batch(tiny_job: Callable[..., Job]) -> None:
    """Pixel by pixel: −log(e^{S⁺/τ} / (e^{S⁺/τ} + e^{S⁻/τ})), every class with the same weight."""
    stage = begun(tiny_job(round_view=True), confidence=0, embedding=SMALL | {"bank": 0, "temperature": 0.5})
    batch = still(stage).render(stage.draw(WHOLE))
    stage.projector.eval()
    with torch.no_grad():
        taught = stage.teach(batch)
        features = stage.segmenter.features(torch.cat([batch.images, batch.strong]))
        labels, confidence = torch.cat([batch.labels, taught.target]), torch.rand(8, 32, 32)
        found, weight = stage.contrast(batch, taught, features, labels, confidence)
        queries, keys = stage.projector(features), stage.key_projector(taught.features)
    key_labels = torch.cat([batch.neighbour_labels, taught.target])[:, 4::8, 4::8]
    assert torch.equal(taught.features[4:], stage.average.module.features(batch.weak))
    losses: dict[int, list[tuple[float, float]]] = {}
    for i, y, x in np.ndindex(8, 4, 4):
        label = int(labels[i, 8 * y + 4, 8 * x + 4])
        if label == IGNORE or not (key_labels == label).any():
            continue
        alike = torch.einsum("d,kdhw->khw", queries[i, :, y, x], keys)
        positive = alike[key_labels == label].mean()
        others = [(key_labels[k] != label) & (key_labels[k] != IGNORE) for k in range(8)]
        means = [alike[k][others[k]].mean().item() if others[k].any() else 0.0 for k in range(8)]
        shown = sum((key_labels[k] != IGNORE).any().item() for k in range(8))
        loss = F.softplus((sum(means) / shown - positive) / 0.5).item()
        losses.setdefault(label, []).append((loss, confidence[i, 8 * y + 4, 8 * x + 4].item()))
    balanced = [sum(v * w for v, w in each) / sum(w for _, w in each) for each in losses.values()]
    assert weight.item() == pytest.approx(len(balanced))
    assert found.item() == pytest.approx(sum(balanced), rel=1e-4)


def test_the_bank_remembers_what_the_teacher_saw(tiny_job: Callable[..., Job]) -> None:
    stage = begun(tiny_job(), confidence=0)
    batch = stage.render(stage.draw(WHOLE))
    stage.loss(batch)
    assert stage.bank is not None
    met = set(torch.cat([batch.neighbour_numbers, batch.numbers]).tolist())
    assert set(stage.bank.visited[:-1].nonzero().flatten().tolist()) == met
    taught = stage.teach(batch)
    weak = class_sums(stage.key_projector(taught.features[4:]), taught.target[:, 4::8, 4::8], stage.classes)
    torch.testing.assert_close(ClassSums(stage.bank.sums[batch.numbers], stage.bank.counts[batch.numbers]), weak)


def test_contrast_fades(tiny_job: Callable[..., Job]) -> None:
    stage = begun(tiny_job(), contrast=1.0, embedding=SMALL | {"bank": 0})
    batch = still(stage).render(stage.draw(WHOLE))
    with torch.no_grad():
        parts = []
        for clock in (0.0, 0.5, 1.0):
            stage.clock.fill_(clock)
            parts.append(stage.loss(batch).loss.item())
    first, half, last = parts
    assert first > last
    assert half == pytest.approx((first + last) / 2, rel=1e-4)


def test_strong_views_share_the_geometry_of_the_weak_ones(tiny_job: Callable[..., Job]) -> None:
    plain = {"crop": (0.5, 1.0), "color": "none"}
    stage = begun(tiny_job(), strong=plain, restyle=0, cutmix=0)
    batch = stage.render(stage.draw(WHOLE))
    torch.testing.assert_close(batch.strong, batch.weak, atol=1e-5, rtol=0)
    stage = begun(tiny_job(), strong=plain, restyle=1, cutmix=0)
    styled = stage.render(stage.draw(WHOLE))
    assert torch.equal(styled.weak, batch.weak)
    assert ((styled.strong - batch.weak).abs().amax((1, 2, 3)) > 0.01).all()


def test_has_as_many_supervised_steps_as_the_baseline() -> None:
    assert supervised_steps("stitch") == supervised_steps("strong") == supervised_steps("supervised")
