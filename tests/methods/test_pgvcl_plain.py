"""The one-page example computes what the package computes."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from plain_example import plain
from stage_tester import Build
from torch import nn

from suture.data.classes import IGNORE
from suture.losses.hard_pixels import hard_pixels
from suture.methods.optim import Lars
from suture.methods.pgvcl import Contrast, ContrastSettings
from suture.methods.stage import Part
from suture.models.segmenter import build_segmenter


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy all weights and buffers by order: the two libraries name them differently."""
    values = iter(source.state_dict().values())
    target.load_state_dict({name: next(values) for name in target.state_dict()})


def test_contrast_step_equals_that_of_the_package(tiny_context: Build) -> None:
    """Same weights, inputs and keys: same loss, and same weights of both branches after a step of LARS."""
    torch.manual_seed(0)
    segmenter = build_segmenter("deeplabv3", "resnet50", classes=3)
    # torchvision dilates a stage from its second block on, segmentation-models-pytorch from its first.
    for block, dilation in ((segmenter.encoder.layer3[0], 1), (segmenter.encoder.layer4[0], 2)):
        block.conv2.dilation = block.conv2.padding = (dilation, dilation)
    context = tiny_context({"a": 4, "b": 4}, every=1, segmenter=segmenter)
    stage = Contrast("contrast", ContrastSettings(steps=2, epochs=None, batch=2))
    stage.begin(context)
    stage.on_train_start()
    network = plain.Segmenter(3, pretrained=False)
    for part, parts in (("encoder", network.encoder), ("decoder", network.aspp), ("head", network.head)):
        copy_weights(getattr(segmenter, part), parts)
    online = plain.Branch(network)
    copy_weights(stage.online.projector, online.projector)
    momentum = copy.deepcopy(online)
    for branch in (online, momentum):
        for module in branch.modules():
            if isinstance(module, nn.Dropout):
                module.eval()

    batch = stage.render(stage.draw(Part(0, range(2), range(2))))
    own = batch.own_numbers.shape[1]
    places = torch.stack([torch.cat([torch.arange(b * own, (b + 1) * own), batch.others[b]]) for b in range(2)])
    optimizer = stage.make_optimizer()
    network.head.requires_grad_(False)
    learning = [p for p in online.parameters() if p.requires_grad]
    plain_optimizer = plain.LARS(learning, lr=optimizer.param_groups[0]["lr"])

    start = [p.detach().clone() for p in online.parameters()]
    loss = stage(batch, 0)
    loss.backward()
    optimizer.step()
    stage.momentum.update(stage.online, 0.9)
    plain_loss = plain.contrast_step(
        online,
        momentum,
        plain_optimizer,
        batch.queries.images,
        batch.queries.labels,
        batch.keys.images[places],
        batch.keys.labels[places],
        m=0.9,
    )
    assert plain_loss == pytest.approx(loss.item(), rel=1e-4)
    for ours, theirs in ((stage.online, online), (stage.momentum.module, momentum)):
        steps = [
            torch.cat([(p - before).flatten() for p, before in zip(branch.parameters(), start, strict=True)])
            for branch in (ours, theirs)
        ]
        assert (steps[0] - steps[1]).norm() <= 1e-2 * steps[0].norm()


def test_ohem_and_lars_equal_those_of_the_package() -> None:
    logits = 3 * torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 3, (2, 8, 8))
    labels[0, :3] = IGNORE
    total, count = hard_pixels(logits, labels)
    torch.testing.assert_close(plain.ohem(logits, labels), total / count)

    layers = [nn.Linear(4, 3)]
    layers.append(copy.deepcopy(layers[0]))
    optimizers = [Lars(layers[0].parameters(), lr=0.5, weight_decay=1e-5), plain.LARS(layers[1].parameters(), lr=0.5)]
    for _ in range(3):
        for layer, optimizer in zip(layers, optimizers, strict=True):
            optimizer.zero_grad()
            layer(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(layers[0].weight, layers[1].weight)


def test_runs_on_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("frames/a", "frames/b", "masks/a", "masks/b"):
        (tmp_path / name).mkdir(parents=True)
    for number in range(8):
        labels = np.zeros((32, 32), np.uint8)
        labels[8:24, number : number + 16] = 1
        labels[28:] = 2
        image = np.array([[180, 90, 80], [90, 90, 110], [120, 20, 30]], np.uint8)[labels]
        name = f"{'ab'[number // 4]}/{number:03}.png"
        Image.fromarray(image).save(tmp_path / "frames" / name)
        Image.fromarray(labels).save(tmp_path / "masks" / name)
    monkeypatch.chdir(tmp_path)
    options = ["--classes", "3", "--every", "2", "--size", "32", "--steps", "2", "2", "1", "--random-weights"]
    segmenter = plain.main([str(tmp_path), *options])
    assert all(p.isfinite().all() for p in segmenter.parameters())
    assert (tmp_path / "pgvcl.pt").exists()


def test_shots_are_cut_where_the_histogram_changes() -> None:
    dark, bright = (np.full((8, 8, 3), value, np.uint8) for value in (40, 200))
    assert plain.find_shots([dark, dark, bright, bright, dark]).tolist() == [0, 0, 1, 1, 2]
