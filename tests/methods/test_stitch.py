"""Stitch: what each part adds, against slow and obvious versions; and that parts can be left out."""

from typing import Any

import pytest
import torch
from stage_tester import Build, StageTester
from torch import Tensor
from torch.nn import functional as F

from suture.data.classes import IGNORE
from suture.methods import stitch
from suture.methods.stage import Part, StageContext
from suture.methods.stitch import Neighbours, Stitch, StitchSettings
from suture.methods.strong import Strong, StrongSettings
from suture.models.segmenter import set_dropout

WHOLE = Part(0, range(4), range(4))


class TestStitch(StageTester):
    def make(self, **settings: Any) -> Stitch:
        return Stitch("train", StitchSettings(batch=4, confidence=0.5, **settings))


def begun(context: StageContext, **settings: Any) -> Stitch:
    stage = Stitch("train", StitchSettings(**{"steps": 10, "batch": 4} | settings))
    stage.begin(context)
    return stage


def still(stage: Stitch) -> Stitch:
    """Without what makes two passes of the same images differ."""
    set_dropout(stage, active=False)
    stage.segmenter.eval()
    return stage


PARTS = [
    *({name: 0} for name in ("consistency", "propagate", "confidence", "ema", "restyle", "cutmix", "rare")),
    {"augment": {"tilt": 0}, "strong": {"tilt": 0, "color": "mild"}},
    {"correspondence": {"neighbours": 2}},
]


@pytest.mark.parametrize("off", PARTS, ids=lambda off: "-".join(off))
def test_every_part_can_be_left_out(off: dict[str, Any], tiny_context: Build) -> None:
    stage = begun(tiny_context(), **off)
    loss = stage.step(stage.render(stage.draw(WHOLE)))[0]
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in stage.parameters() if p.requires_grad)


def test_the_teacher_alone_needs_no_neighbours(tiny_context: Build) -> None:
    stage = begun(tiny_context(), propagate=0)
    assert stage.draw(WHOLE).neighbours is None
    assert stage.step(stage.render(stage.draw(WHOLE)))[0].isfinite()


@pytest.mark.parametrize("further", [{}, {"crop": (0.8, 1.5)}])
def test_all_views_of_a_frame_are_tilted_alike(further: dict, tiny_context: Build) -> None:
    """What the student and its teacher see is the same but for colours and patches; nothing is learnt off the scene."""
    plain = {"crop": (0.6, 0.8), "tilt": 180, "color": "none"} | further
    stage = still(begun(tiny_context(round_view=False), cutmix=0, restyle=0, strong=plain))
    drawn = stage.draw(WHOLE)
    assert drawn.neighbours is not None
    assert drawn.views.images.slants is not None
    assert drawn.neighbours.images.slants is not None
    shape = drawn.views.images.slants / drawn.views.images.boxes[:, 2:].flip(1)
    torch.testing.assert_close(drawn.neighbours.images.slants / drawn.neighbours.images.boxes[:, 2:].flip(1), shape)
    views = stage.render(drawn)
    torch.testing.assert_close(views.strong, views.weak, atol=1e-5, rtol=0)
    target, _ = stage.teach(views)
    assert not views.in_view.all()
    assert torch.equal(target != IGNORE, views.in_view)


def test_without_the_unlabelled_frames_it_is_strong(tiny_context: Build) -> None:
    """With the same settings, the same views of the same frames and the same loss."""
    differs = [name for name, value in StrongSettings() if getattr(StitchSettings(), name) != value]
    assert differs == ["strong_labelled"]
    context = tiny_context()
    control = Strong("train", StrongSettings(steps=10, batch=4))
    control.begin(context)
    stage = still(begun(context, consistency=0, strong_labelled=0.5))
    batch, images = stage.render(stage.draw(WHOLE)), control.render(control.draw(WHOLE))
    assert all(map(torch.equal, batch[:2], images))
    torch.testing.assert_close(stage.step(batch)[1], control.step(images)[1])


def test_loss_is_labels_and_consistency(tiny_context: Build) -> None:
    """Without the video, sample by sample and pixel by pixel."""
    stage = begun(tiny_context(round_view=True), confidence=0.55, consistency=0.7, cutmix=1, propagate=0)
    stage.average.module.head.classifier.weight.mul_(1000)  # a teacher that is sure of some pixels
    batch = still(stage).render(stage.draw(WHOLE))
    with torch.no_grad():
        total = stage.loss(batch)
        supervised = F.cross_entropy(stage.segmenter(batch.images), batch.labels, ignore_index=IGNORE)
        belief, predicted = stage.average(batch.weak).softmax(1), stage.segmenter(batch.strong).log_softmax(1)
        loss, pixels, kept = 0.0, 0, 0
        for i in range(4):
            for y in range(32):
                for x in range(32):
                    source = i - 1 if batch.patched[i, y, x] else i
                    if batch.in_view[source, y, x]:
                        pixels += 1
                        sure, label = belief[source, :, y, x].max(0)
                        if sure >= 0.55:
                            loss, kept = loss - predicted[i, label, y, x], kept + 1
    assert 0.05 * pixels < kept < 0.95 * pixels
    assert total.taught == pytest.approx(kept / pixels)
    torch.testing.assert_close(total.loss / total.weight, supervised + 0.7 * loss / pixels, rtol=1e-4, atol=1e-5)


def moved(cells: int, nearness: float = 1.0) -> tuple[Tensor, Neighbours]:
    """A scene that moved `cells` to the left between the labelled frame and the unlabelled one.

    Given are the features that a perfect teacher would have, first of the neighbour, then of the frame.
    """
    generator = torch.Generator().manual_seed(0)
    scene = torch.randn(1, 64, 4, 8, generator=generator)
    labels = torch.randint(0, 3, (1, 4, 4), generator=generator)
    features = torch.cat([scene[..., :4], scene[..., cells : cells + 4]])
    labels = labels.repeat_interleave(8, 1).repeat_interleave(8, 2)
    return features, Neighbours(torch.empty(0), labels, torch.tensor([[nearness]]))


@pytest.mark.parametrize("cells", [0, 1, 2])
def test_labels_follow_what_moved(cells: int, tiny_context: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stitch, "from_cells", lambda x, *_: x)  # as they are, before they are interpolated
    stage = begun(tiny_context(), propagate=0.8, correspondence={"radius": 0.5, "top": 1, "cycle": 0})
    features, near = moved(cells, nearness=0.5)
    carried = stage.carried(features, near)[0, :, :, : 4 - cells]
    truth = near.labels[0, ::8, ::8][:, cells:]
    torch.testing.assert_close(carried, 0.8 * 0.5 * F.one_hot(truth, 3).permute(2, 0, 1).float())


def test_carried_labels_join_the_teacher_s(tiny_context: Build) -> None:
    stage = begun(tiny_context(), propagate=0.6)
    batch = still(stage).render(stage.draw(WHOLE))
    carried = torch.zeros(4, 3, 32, 32)
    carried[:2, 2] = 0.6
    stage.carried = lambda *_: carried  # type: ignore[method-assign]
    found = stage.teach(batch)
    belief = stage.average(batch.weak).softmax(1)
    expected = belief[:2] * (torch.tensor([0.0, 0.0, 0.6]) + 0.4 / 3).view(3, 1, 1)
    expected /= expected.sum(1, keepdim=True)
    sure, target = torch.cat([expected, belief[2:]]).max(1)
    assert torch.equal(found[0], target.where(batch.in_view, IGNORE))
    torch.testing.assert_close(found[1], sure)


def test_nothing_is_carried_across_a_cut(tiny_context: Build) -> None:
    context = tiny_context({"a": 6, "b": 6}, every=6)  # the second shot of each video has no label
    stage = begun(context, batch=8)
    near = stage.render(stage.draw(Part(0, range(8), range(8)))).neighbours
    alone = torch.tensor([context.shots[number] % 2 == 1 for number in stage.unlabelled_numbers(0, range(8))])
    assert 0 < alone.sum() < 8
    assert torch.equal(near.nearness[:, 0] == 0, alone)
    assert (near.labels[alone] == IGNORE).all()
    features = torch.rand(16, stage.segmenter.features_channels, 4, 4)
    carried = stage.carried(features, near)
    assert not carried[alone].any()
    assert carried[~alone].flatten(1).any(1).all()


def test_neighbours_are_cut_as_their_frames(tiny_context: Build) -> None:
    context = tiny_context()
    for place in list(context.frames.pixels._frames):
        context.frames.pixels._frames[place] = context.frames.pixels._frames[place[0], 0]  # a video that stands still
    stage = begun(context, correspondence={"neighbours": 2})
    batch = stage.render(stage.draw(WHOLE))
    assert len(batch.neighbours.images) == 8
    torch.testing.assert_close(batch.neighbours.images, batch.weak.repeat_interleave(2, 0))


def test_two_neighbours_share_the_say(tiny_context: Build) -> None:
    stage = begun(tiny_context(), propagate=0.5, correspondence={"neighbours": 2, "top": 1})
    features, near = moved(0)
    both = near._replace(labels=torch.cat([near.labels, (near.labels + 1) % 3]), nearness=torch.tensor([[1.0, 0.25]]))
    carried = stage.carried(torch.cat([features[:1], features[:1], features[1:]]), both)[0, :, ::31, ::31]
    truth = near.labels[0, ::31, ::31]
    torch.testing.assert_close(carried.gather(0, truth[None]), torch.full((1, 2, 2), 0.5 * 0.8))
    torch.testing.assert_close(carried.gather(0, (truth[None] + 1) % 3), torch.full((1, 2, 2), 0.5 * 0.2))


def test_strong_views_share_the_geometry_of_the_weak_ones(tiny_context: Build) -> None:
    plain = {"crop": (0.5, 1.0), "color": "none"}
    stage = begun(tiny_context(), strong=plain, restyle=0, cutmix=0)
    batch = stage.render(stage.draw(WHOLE))
    torch.testing.assert_close(batch.strong, batch.weak, atol=1e-5, rtol=0)
    stage = begun(tiny_context(), strong=plain, restyle=1, cutmix=0)
    styled = stage.render(stage.draw(WHOLE))
    assert torch.equal(styled.weak, batch.weak)
    assert ((styled.strong - batch.weak).abs().amax((1, 2, 3)) > 0.01).all()
