"""PixPro: two views of a frame agree where they show the same place."""

from typing import Any

import pytest
import torch
from stage_tester import Build, StageTester, supervised_steps
from torch.nn import functional as F

from suture.data.classes import IGNORE
from suture.data.sampling.augment import render_labels
from suture.methods.method import find_method
from suture.methods.pixpro import Propagation, PropagationSettings
from suture.methods.stage import Part, StageContext

WHOLE = Part(0, range(4), range(4))
SMALL = {"hidden": 16, "channels": 8}


class TestPropagation(StageTester):
    def make(self, **settings: Any) -> Propagation:
        return Propagation("propagation", PropagationSettings(epochs=None, **SMALL, **settings))


def begun(context: StageContext, **settings: Any) -> Propagation:
    stage = Propagation("propagation", PropagationSettings(**SMALL, **settings))
    stage.begin(context)
    return stage


def test_views_come_to_agree(tiny_context: Build, fit: Any) -> None:
    tiny: dict[str, Any] = {"every": 2, "stored": (32, 32), "architecture": "deeplabv3plus"}
    untrained = begun(tiny_context({"a": 4, "b": 4}, **tiny))
    stage = Propagation("propagation", PropagationSettings(steps=30, epochs=None, **SMALL))
    fit(stage, tiny_context({"a": 4, "b": 4}, **tiny))
    batch = stage.render(stage.draw(WHOLE))
    with torch.no_grad():
        before, after = ((total.loss / total.weight).item() for total in (untrained.loss(batch), stage.loss(batch)))
    assert -2 <= after < before - 0.1


def test_loss_is_the_paper_s(tiny_context: Build) -> None:
    """Both directions of every frame: z of one view against x' of the other, over their pairs."""
    stage = begun(tiny_context())
    for p in stage.momentum.parameters():
        p.mul_(1.1)  # else one could not tell the branches apart
    stage.eval()
    batch = stage.render(stage.draw(WHOLE))
    with torch.no_grad():
        x, keys = stage.online.projector.layers(stage.segmenter.features(batch.images)), stage.momentum(batch.images)
        g = F.normalize(stage.transform(x), dim=1)  # of the projection as it is, then of unit length
        x = F.normalize(x, dim=1)
        assert not torch.allclose(x, keys)
        x, g, keys = (y.flatten(2).double() for y in (x, g, keys))
        losses = []
        for frame in range(4):
            for a, b in ((frame, frame + 4), (frame + 4, frame)):
                z = F.normalize(g[a] @ (x[a].T @ x[a]).clamp(min=0) ** 2, dim=0)
                apart = torch.cdist(batch.cells.centres[a], batch.cells.centres[b])
                near = apart / max(batch.cells.diagonal[a], batch.cells.diagonal[b]) < 0.7
                losses.append(-(z.T @ keys[b])[near].mean())
        total = stage.loss(batch)
    expected = sum(loss for loss in losses if not loss.isnan()) / sum(not loss.isnan() for loss in losses) * 2
    torch.testing.assert_close((total.loss / total.weight).double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tilt", [0, 60])
def test_cells_lie_where_their_pixels_come_from(tilt: float, tiny_context: Build) -> None:
    """In frames that show coordinates as colours, a cell's mean colour is its place in the frame."""
    context = tiny_context(size=(64, 64), stored=(120, 200))
    x, y = torch.meshgrid(torch.arange(200), torch.arange(120), indexing="xy")
    ramps = torch.stack([x, y, x * 0], -1).byte().numpy()
    context.frames.image = lambda number: ramps  # type: ignore[method-assign]
    stage = begun(context, augment={"crop": (0.3, 0.7), "tilt": tilt, "color": "none"})
    patches, outlines = stage.draw(WHOLE)
    assert patches.flip.any()
    assert not patches.flip.all()
    batch = stage.render((patches, outlines))
    stride = stage.segmenter.stride
    colors = F.avg_pool2d(batch.images, stride)[:, :2].flatten(2).mT * 255
    off = F.max_pool2d((render_labels(patches, (64, 64)) == IGNORE).float(), stride).flatten(1) > 0
    assert 0 < off.float().mean() < 0.5 if tilt else not off.any()
    torch.testing.assert_close(batch.cells.centres[~off], colors[~off] + 0.5, atol=0.6, rtol=0)
    torch.testing.assert_close(batch.cells.diagonal, outlines[:, 2:].norm(dim=1) * stride / 64)


def test_cells_outside_the_view_take_no_part(tiny_context: Build) -> None:
    stage = begun(tiny_context(round_view=True), augment={"crop": (0.9, 1.0)})
    batch = stage.render(stage.draw(WHOLE))
    pairs = stage.pairs(batch)
    assert not batch.in_view.all()
    assert pairs.any()
    assert not pairs[~batch.in_view].any()
    assert not pairs.mT[~batch.in_view.roll(4, 0)].any()


def test_visits_all_frames(tiny_context: Build) -> None:
    stage = begun(tiny_context(numbered=True), augment={"color": "none"})
    assert stage.epoch_frames == 12
    seen = []
    for step in range(3):
        numbers = (stage.render(stage.draw(WHOLE._replace(step=step))).images.mean((1, 2, 3)) * 25.5).round().int()
        assert torch.equal(numbers[:4], numbers[4:])  # two views of one frame
        seen += numbers[:4].tolist()
    assert sorted(seen) == list(range(12))


def test_only_the_online_branch_propagates_and_learns(tiny_context: Build, fit: Any) -> None:
    context = tiny_context()
    head = context.segmenter.head.classifier.weight.detach().clone()
    stage = Propagation("propagation", PropagationSettings(steps=2, epochs=None, momentum=1.0, **SMALL))
    stage.begin(context)
    keys = {name: p.clone() for name, p in stage.momentum.named_parameters()}
    transform = stage.transform.weight.detach().clone()
    fit(stage, context)
    assert not torch.equal(stage.transform.weight, transform)
    assert torch.equal(context.segmenter.head.classifier.weight, head)
    assert not any("transform" in name for name in keys)
    assert {id(p) for group in stage.groups() for p in group["params"]}.isdisjoint(map(id, stage.momentum.parameters()))


def test_differs_from_pgvcl_in_the_contrast_only() -> None:
    ours, theirs = (find_method(name).Settings() for name in ("pixpro", "pgvcl"))
    assert (ours.pretrain, ours.finetune) == (theirs.pretrain, theirs.finetune)
    shared = ("steps", "epochs", "batch", "optimizer", "augment", "momentum")
    assert [getattr(ours.propagation, key) for key in shared] == [getattr(theirs.contrast, key) for key in shared]
    assert supervised_steps("pixpro") == supervised_steps("supervised")
    assert ours.propagation.distance == pytest.approx(0.7)
