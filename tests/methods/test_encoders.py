"""Encoders of four families, tiny and random: training, resuming, CUDA graphs and ONNX."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from stage_tester import Build, SaveAt
from timm.models import register_model
from timm.models.eva import _create_eva
from timm.models.hieradet_sam2 import _create_hiera_det
from timm.models.vision_transformer import _create_vision_transformer
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from suture.deployment.export import DeployedSegmenter, ExportFormat, to_onnx
from suture.methods.stage import OptimizerSettings, Part, Stage, StageContext, TrainingSettings
from suture.methods.supervised import Supervised
from suture.models.model import Model
from suture.models.segmenter import Segmenter, build_segmenter
from suture.training.loop import TrainingLoop

VIT = {"patch_size": 14, "img_size": 70, "embed_dim": 32, "depth": 4, "num_heads": 2}


@register_model
def vit_nano(pretrained: bool = False, **options: Any) -> nn.Module:
    """DINOv2: patches of 14 pixels, layer scale."""
    return _create_vision_transformer("vit_nano", pretrained, **VIT, init_values=0.1, **options)


@register_model
def vit_nano_reg4(pretrained: bool = False, **options: Any) -> nn.Module:
    """DINOv3: registers, rotary positions."""
    settings = VIT | {"patch_size": 16, "num_reg_tokens": 4, "use_abs_pos_emb": False, "use_rot_pos_emb": True}
    return _create_eva("vit_nano_reg4", pretrained, **settings, **options)


@register_model
def hiera_nano(pretrained: bool = False, **options: Any) -> nn.Module:
    """SAM 2: four scales, attention in windows."""
    settings = {"embed_dim": 16, "stages": (1, 1, 2, 1), "global_att_blocks": (3,), "global_pos_size": (4, 4)}
    return _create_hiera_det("hiera_nano", pretrained, **settings, **options)


FAMILIES = {
    "tu-vit_nano": "dpt",
    "tu-vit_nano_reg4": "dpt",
    "tu-hiera_nano": "upernet",
    "tu-test_convnext": "upernet",
}


def build(encoder: str, **options: Any) -> Segmenter:
    torch.manual_seed(0)
    return build_segmenter(FAMILIES[encoder], encoder, classes=3, **options)


def stage_and_context(tiny_context: Build, encoder: str, **options: Any) -> tuple[Stage, StageContext]:
    optimizer = OptimizerSettings(lr=1e-3, layer_decay=0.8)
    stage = Supervised("train", TrainingSettings(steps=3, batch=2, optimizer=optimizer))
    return stage, replace(tiny_context(), segmenter=build(encoder, **options))


@pytest.fixture(params=FAMILIES)
def encoder(request: pytest.FixtureRequest) -> str:
    return request.param


def test_training_resumes_to_the_same_weights(encoder: str, tiny_context: Build, tmp_path: Path) -> None:
    stage, context = stage_and_context(tiny_context, encoder)
    stage.begin(context)
    TrainingLoop(stage, [SaveAt(1, tmp_path / "last.ckpt")]).run()
    resumed, context = stage_and_context(tiny_context, encoder)
    resumed.begin(context)
    start = {name: tensor.clone() for name, tensor in resumed.state_dict().items()}
    loop = TrainingLoop(resumed)
    loop.load_state_dict(torch.load(tmp_path / "last.ckpt", weights_only=True))
    loop.run()
    weights, others = stage.segmenter.state_dict(), resumed.segmenter.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    learnt = dict(stage.segmenter.named_parameters())
    assert not [name for name in learnt if torch.equal(weights[name], start[f"segmenter.{name}"])]


def test_a_step_waits_for_no_values(encoder: str, tiny_context: Build) -> None:
    stage, context = stage_and_context(tiny_context, encoder)
    stage.begin(context)
    batch = stage.render(stage.draw(Part(0, range(2), range(2))))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert stage.step(tree_map_only(torch.Tensor, mode.from_tensor, batch))[0].shape == ()


def test_onnx_gives_the_same_logits(encoder: str) -> None:
    size, shape = (60, 70), ExportFormat((60, 70), logits=True)
    model = Model(build(encoder).eval(), ("a", "b", "c"), ((0, 0, 0),) * 3, size)
    frames = np.random.default_rng(0).integers(0, 256, (1, *size, 3), np.uint8)
    session = onnxruntime.InferenceSession(to_onnx(model, shape), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = DeployedSegmenter(model.segmenter, size, shape)(torch.from_numpy(frames))
    torch.testing.assert_close(torch.from_numpy(session.run(None, {"frames": frames})[0]), expected)


def test_gradient_checkpointing_changes_no_gradient(encoder: str) -> None:
    images, gradients = torch.rand(2, 3, 60, 70), []
    for checkpointing in (False, True):
        segmenter = build(encoder, gradient_checkpointing=checkpointing)
        segmenter(images).square().mean().backward()
        gradients.append([p.grad for p in segmenter.parameters()])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("encoder", ["tu-vit_nano", "tu-test_convnext"], indirect=True)
def test_a_frozen_encoder_keeps_its_weights(encoder: str, tiny_context: Build) -> None:
    stage, context = stage_and_context(tiny_context, encoder, freeze_encoder=True)
    before = {name: tensor.clone() for name, tensor in context.segmenter.state_dict().items()}
    stage.begin(context)
    TrainingLoop(stage).run()
    assert not stage.segmenter.encoder.training
    for name, tensor in stage.segmenter.state_dict().items():
        if name.startswith("encoder.") or name.endswith("weight"):
            assert torch.equal(tensor, before[name]) == name.startswith("encoder."), name


@pytest.mark.parametrize(
    ("architecture", "encoder", "rates"),
    [
        ("dpt", "tu-vit_nano", (2e-5, 10, 10)),
        ("upernet", "tu-test_convnext", (1e-4, 1, 5)),
        ("pspnet", "tu-test_resnet", (3e-4, 1, 5)),
    ],
)
def test_rates_are_chosen_by_the_network(architecture: str, encoder: str, rates: tuple[float, ...]) -> None:
    segmenter = build_segmenter(architecture, encoder)
    assert OptimizerSettings(lr=None).rates(segmenter) == rates
    assert OptimizerSettings(lr=1e-3).rates(segmenter) == (1e-3, 1, 5)


def test_frozen_batch_norms_keep_their_statistics() -> None:
    segmenter = build_segmenter("pspnet", "tu-test_resnet", freeze_encoder=True)
    before = {name: tensor.clone() for name, tensor in segmenter.encoder.state_dict().items()}
    segmenter(torch.rand(2, 3, 64, 64))
    assert all(torch.equal(tensor, before[name]) for name, tensor in segmenter.encoder.state_dict().items())
