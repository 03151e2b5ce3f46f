from pathlib import Path
from typing import Any

import pytest
import segmentation_models_pytorch as smp
import torch
from segmentation_models_pytorch.encoders.timm_vit import TimmViTEncoder
from torch import nn
from torch.nn import functional as F

from suture.core.errors import UserError
from suture.models import segmenter as segmenter_module
from suture.models.dpt import DptDecoder
from suture.models.model import load_model, save_model
from suture.models.segmenter import Segmenter, build_segmenter, set_dropout

CLASSES = 3


class SegmenterTester:
    """What holds for every architecture; a subclass names one, with an encoder."""

    architecture: str
    encoder = "resnet18"
    stride: int
    channels: int

    @pytest.fixture(scope="class")
    def segmenter(self) -> Segmenter:
        torch.manual_seed(0)
        return build_segmenter(self.architecture, self.encoder, classes=CLASSES)

    @pytest.fixture(autouse=True)
    def _as_built(self, segmenter: Segmenter) -> None:
        segmenter.train()
        segmenter.zero_grad()

    def test_forward_and_backward(self, segmenter: Segmenter) -> None:
        images = torch.rand(2, 3, 64, 64)
        features = segmenter.features(images)
        logits = segmenter.classify(features, (64, 64))
        assert segmenter.stride == self.stride
        assert segmenter.features_channels == self.channels
        assert features.shape == (2, self.channels, 64 // self.stride, 64 // self.stride)
        assert logits.shape == (2, CLASSES, 64, 64)
        logits.square().mean().backward()
        used = {name.split(".")[0] for name, p in segmenter.named_parameters() if p.grad is not None}
        assert used == {"encoder", "decoder", "head"}

    def test_takes_any_resolution(self, segmenter: Segmenter) -> None:
        segmenter.eval()
        with torch.no_grad():
            for size in ((70, 45), (31, 64), (96, 33)):
                images = torch.rand(1, 3, *size)
                features = segmenter.features(images)
                assert features.shape[-2:] == tuple(-(-side // self.stride) for side in size)
                logits = segmenter(images)
                assert logits.shape == (1, CLASSES, *size)
                assert logits.isfinite().all()
                assert segmenter.classify(features, size).shape == logits.shape

    def test_factors_are_of_what_the_encoder_hands_on(self, segmenter: Segmenter) -> None:
        segmenter.eval()
        images = torch.rand(2, 3, 128, 128)
        channels = sum(segmenter.encoder.out_channels)
        factors = torch.stack([torch.ones(channels), torch.zeros(channels)])
        with torch.no_grad():
            plain, found = segmenter.features(images), segmenter.features(images, factors)
        torch.testing.assert_close(found[0], plain[0])
        assert not torch.allclose(found[1], plain[1])

    def test_logits_are_those_of_a_padded_image(self, segmenter: Segmenter) -> None:
        segmenter.eval()
        images = torch.rand(1, 3, 60, 50)
        padded = F.pad(images, (0, -50 % segmenter.multiple, 0, -60 % segmenter.multiple), mode="replicate")
        with torch.no_grad():
            whole, cut = segmenter(padded), segmenter(images)
        torch.testing.assert_close(cut, whole[..., :60, :50])

    def test_low_resolution_logits_are_those_of_smp(self, segmenter: Segmenter) -> None:
        """Regrouping changes nothing before the last upsampling; that one is ours (align_corners=False)."""
        options = {} if segmenter.output_stride is None else {"encoder_output_stride": segmenter.output_stride}
        plain = smp.create_model(self.architecture, self.encoder, None, classes=CLASSES, **options).eval()
        segmenter.eval()
        plain.encoder.load_state_dict(dict(segmenter.encoder.state_dict()))
        if self.architecture == "deeplabv3":
            plain.decoder.aspp.load_state_dict(segmenter.get_submodule("decoder.aspp").state_dict())
            plain.decoder.conv.load_state_dict(segmenter.get_submodule("head.conv").state_dict())
            plain.decoder.bn.load_state_dict(segmenter.get_submodule("head.bn").state_dict())
        else:
            plain.decoder.load_state_dict(segmenter.decoder.state_dict())
        plain.segmentation_head[0].load_state_dict(segmenter.get_submodule("head.classifier").state_dict())
        images = torch.rand(2, 3, 64, 64)
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        normalised = (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)
        with torch.no_grad():
            low = plain.segmentation_head[0](plain.decoder(plain.encoder(normalised)))
            torch.testing.assert_close(segmenter.head(segmenter.features(images)), low)
            upsampled = F.interpolate(low, (64, 64), mode="bilinear", align_corners=False)
            torch.testing.assert_close(segmenter(images), upsampled)
            # and upsampled smp's way (align_corners=True) they are smp's own
            smps = F.interpolate(low, (64, 64), mode="bilinear", align_corners=True)
            torch.testing.assert_close(smps, plain(normalised))

    def test_saved_and_loaded_it_is_the_same(self, segmenter: Segmenter, tmp_path: Path) -> None:
        segmenter(torch.rand(2, 3, 64, 64))  # moves the batch norms' buffers
        segmenter.eval()
        path = tmp_path / "model.safetensors"
        save_model(segmenter, path, {"by": "test"})
        again = load_model(path, segmenter.describe())
        assert not again.training
        assert again.describe() == segmenter.describe()
        images = torch.rand(1, 3, 50, 64)
        with torch.no_grad():
            assert torch.equal(again(images), segmenter(images))

    def test_channels_last_gives_the_same(self, segmenter: Segmenter) -> None:
        """The logits, and the gradient up to a thousandth of its length."""
        segmenter.eval()  # in training, batch norm over two frames would enlarge the rounding
        images = torch.rand(2, 3, 64, 64)
        found = []
        for layout in (torch.contiguous_format, torch.channels_last):
            segmenter.to(memory_format=layout).zero_grad()
            logits = segmenter(images.to(memory_format=layout))
            logits.square().mean().backward()
            gradient = torch.cat([p.grad.flatten() for p in segmenter.parameters() if p.grad is not None])
            found.append((logits.detach(), gradient))
        segmenter.to(memory_format=torch.contiguous_format)
        (plain, plain_gradient), (last, gradient) = found
        torch.testing.assert_close(last, plain, rtol=1e-3, atol=1e-4)
        assert (gradient - plain_gradient).norm() <= 1e-3 * plain_gradient.norm()


class TestDeepLabV3(SegmenterTester):
    architecture = "deeplabv3"
    stride = 8
    channels = 256

    def test_the_head_is_the_last_two_layers(self, segmenter: Segmenter) -> None:
        assert [name for name, _ in segmenter.head.named_children()] == ["conv", "bn", "relu", "classifier"]
        assert [name for name, _ in segmenter.decoder.named_children()] == ["aspp"]


class TestDeepLabV3Plus(SegmenterTester):
    architecture = "deeplabv3plus"
    stride = 4
    channels = 256


class TestUnet(SegmenterTester):
    architecture = "unet"
    encoder = "mobilenet_v2"
    stride = 1
    channels = 16


class TestFPN(SegmenterTester):
    architecture = "fpn"
    stride = 4
    channels = 128


class TestUPerNet(SegmenterTester):
    architecture = "upernet"
    stride = 4
    channels = 256


class TestSegformer(SegmenterTester):
    architecture = "segformer"
    encoder = "mit_b0"
    stride = 4
    channels = 256


class TestDpt(SegmenterTester):
    architecture = "dpt"
    encoder = "tu-test_vit"
    stride = 4
    channels = 64

    def test_low_resolution_logits_are_those_of_smp(self, segmenter: Segmenter) -> None:
        """Smp's encoder, with a plain version of the decoder."""
        segmenter.eval()
        plain = TimmViTEncoder("test_vit", pretrained=False, dynamic_img_size=True, num_classes=0, global_pool="")
        plain.load_state_dict(segmenter.encoder.state_dict())
        weights = segmenter.decoder.state_dict()
        images = torch.rand(2, 3, 64, 96)
        with torch.no_grad():
            taps, _ = plain((images - segmenter.mean) / segmenter.std)
            levels = [plain.model.norm(tap.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) for tap in taps]
            torch.testing.assert_close(segmenter.features(images), plain_dpt(weights, levels, patch=16))

    def test_patches_of_14_pixels_give_stride_4(self) -> None:
        decoder = DptDecoder([8] * 4, patch=14, channels=4)
        levels = [torch.rand(1, 8, 6, 10) for _ in range(4)]
        with torch.no_grad():
            features = decoder(levels)
            torch.testing.assert_close(features, plain_dpt(decoder.state_dict(), levels, patch=14))
        assert features.shape == (1, 4, 21, 35)


def plain_dpt(weights: dict[str, torch.Tensor], levels: list[torch.Tensor], patch: int) -> torch.Tensor:
    def conv(x: torch.Tensor, name: str, **options: Any) -> torch.Tensor:
        return F.conv2d(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"), **options)

    def unit(x: torch.Tensor, name: str) -> torch.Tensor:
        return x + conv(F.relu(conv(F.relu(x), f"{name}.first", padding=1)), f"{name}.second", padding=1)

    rows, columns = levels[0].shape[-2:]
    scaled = []
    for number, level in enumerate(levels):
        name = f"reassemble.{number}"
        x = conv(level, f"{name}.0")
        if number < 2:
            up = 4 >> number
            x = F.conv_transpose2d(x, weights[f"{name}.1.weight"], weights[f"{name}.1.bias"], stride=up)
        elif number == 3:
            x = conv(x, f"{name}.1", stride=2, padding=1)
        scaled.append(conv(x, f"{name}.2", padding=1))
    state = torch.zeros_like(scaled[3])
    for number in (3, 2, 1, 0):
        level = scaled[number] if number == 3 else unit(scaled[number], f"fuse.{number}.skip")
        size = scaled[number - 1].shape[-2:] if number else (rows * patch // 4, columns * patch // 4)
        resized = F.interpolate(unit(state + level, f"fuse.{number}.refine"), size, mode="bilinear", align_corners=True)
        state = conv(resized, f"fuse.{number}.project")
    return state


def test_compiles_without_a_break() -> None:
    segmenter = build_segmenter("deeplabv3", "resnet18", classes=2).eval()
    images = torch.rand(1, 3, 41, 32)
    with torch.no_grad():
        assert torch.equal(torch.compile(segmenter, backend="eager", fullgraph=True)(images), segmenter(images))


@pytest.mark.parametrize(
    ("options", "stride"),
    [
        ({}, 8),  # DeepLabV3-ResNet50
        ({"encoder": "resnet18", "output_stride": 16}, 16),
        ({"architecture": "dpt", "encoder": "tu-vit_tiny_patch16_224"}, 4),
    ],
)
def test_output_strides(options: dict[str, Any], stride: int) -> None:
    segmenter = build_segmenter(classes=2, **options).eval()
    with torch.no_grad():
        assert segmenter.stride == stride
        assert segmenter(torch.rand(1, 3, 70, 40)).shape == (1, 2, 70, 40)


def test_normalisation_is_inside() -> None:
    segmenter = build_segmenter("unet", "mobilenet_v2", classes=2).eval()
    seen: list[torch.Tensor] = []
    segmenter.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        segmenter(torch.tensor([0.485, 0.456, 0.406 + 0.225]).view(1, 3, 1, 1).expand(1, 3, 32, 32))
    torch.testing.assert_close(seen[0][0, :, 0, 0], torch.tensor([0.0, 0.0, 1.0]), atol=1e-6, rtol=0)


def test_timm_encoders_bring_their_own_normalisation() -> None:
    inception_like = build_segmenter("unet", "tu-mobilenetv3_small_075.lamb_in1k", classes=2)
    assert inception_like.describe()["mean"] == [0.485, 0.456, 0.406]
    halves = build_segmenter("segformer", "tu-mobilenetv3_large_100.miil_in21k_ft_in1k", classes=2)
    assert halves.describe()["mean"] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("architecture", "encoder", "expected"),
    [
        ("deeplabv3", "resnet18", False),
        ("unet", "efficientnet-b0", False),
        ("segformer", "mit_b0", True),
        ("upernet", "tu-sam2_hiera_tiny", True),
        ("unet", "tu-convnext_atto", True),
    ],
)
def test_encoders_made_like_transformers_are_known_by_their_layer_norms(
    architecture: str, encoder: str, expected: bool
) -> None:
    assert build_segmenter(architecture, encoder, classes=2).has_layer_norms == expected


def test_dropout_can_be_switched() -> None:
    segmenter = build_segmenter("deeplabv3", "resnet18", classes=2).train()
    assert segmenter.has_active_dropout
    dropouts = [module for module in segmenter.modules() if isinstance(module, nn.Dropout)]
    set_dropout(segmenter, active=False)
    assert dropouts
    assert not any(module.training for module in dropouts)
    assert segmenter.get_submodule("head.bn").training
    segmenter.eval()
    set_dropout(segmenter, active=True)
    assert all(module.training for module in dropouts)
    assert not segmenter.get_submodule("head.bn").training
    with torch.no_grad():
        images = torch.rand(1, 3, 32, 32)
        assert not torch.equal(segmenter(images), segmenter(images))


@pytest.mark.parametrize(("architecture", "encoder"), [("segformer", "mit_b0"), ("unet", "efficientnet-b0")])
def test_stochastic_depth_is_switched_with_dropout_but_is_none(architecture: str, encoder: str) -> None:
    segmenter = build_segmenter(architecture, encoder, classes=2).train()
    assert not segmenter.has_active_dropout
    images = torch.rand(2, 3, 32, 32)
    norms = [module for module in segmenter.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]

    def differ() -> bool:
        for norm in norms:
            norm.eval()
        with torch.no_grad():
            first = segmenter(images)
            return not all(torch.equal(segmenter(images), first) for _ in range(10))

    torch.manual_seed(0)
    assert differ()
    segmenter.train()
    set_dropout(segmenter, active=False)
    assert all(norm.training for norm in norms)
    assert not differ()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"architecture": "deeplab3"}, "deeplabv3"),
        ({"encoder": "resnet51"}, "resnet50"),
        ({"encoder": "tu-sam2_hiera_tinny"}, "tu-sam2_hiera_tiny"),
        ({"encoder": "tu-resnet50.nope"}, "tu-resnet50."),
        ({"architecture": "unet", "encoder": "resnet18", "output_stride": 8}, "output_stride"),
        ({"encoder": "resnet18", "output_stride": 32}, "expected 8 or 16"),
        ({"encoder": "densenet121"}, "output stride 8"),
        ({"encoder": "tu-sam2_hiera_tiny"}, "output stride 8"),
        ({"architecture": "dpt", "encoder": "resnet18"}, "tu-"),
        ({"encoder": "resnet18", "layout": "caffe"}, "bottleneck"),
        ({"encoder": "resnet18", "layout": "coffee"}, "torchvision or caffe"),
        ({"encoder": "resnet18", "classes": 0}, "at least 1"),
        ({"encoder": "resnet18", "weights": "imagnet"}, "only imagenet"),
        ({"encoder": "tu-resnet18", "weights": "swsl"}, "NAME.TAG"),
        ({"encoder": "resnet18", "weights": "nowhere/resnet18.pth"}, "nowhere/resnet18.pth"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as error:
        build_segmenter(**{"classes": 2} | settings)
    assert told in str(error.value)


def test_a_description_that_lacks_something_is_refused() -> None:
    with pytest.raises(UserError, match="description of the segmenter"):
        Segmenter.from_description({"architecture": "unet", "encoder": "resnet18", "classes": 2, "output_stride": None})


class Hub:
    """Stands in for `smp.create_model`: weights of the hub are all 0.5, or not to be had."""

    def __init__(self, reachable: bool) -> None:
        self.reachable = reachable
        self.asked: list[Any] = []
        self.create = smp.create_model

    def __call__(self, arch: str, encoder_name: str, encoder_weights: Any, **options: Any) -> nn.Module:
        model = self.create(arch, encoder_name, None, **options)
        if encoder_weights is not None:
            self.asked.append(encoder_weights)
            if not self.reachable:
                raise OSError("We cannot find the requested files.")
            for parameter in model.encoder.parameters():
                parameter.data.fill_(0.5)
        return model


@pytest.mark.parametrize(
    ("encoder", "weights", "argument"), [("resnet18", "swsl", "swsl"), ("tu-resnet18", "imagenet", True)]
)
def test_weights_by_name_go_through_smp(
    monkeypatch: pytest.MonkeyPatch, encoder: str, weights: str, argument: str | bool
) -> None:
    hub = Hub(reachable=True)
    monkeypatch.setattr(segmenter_module.smp, "create_model", hub)
    monkeypatch.setattr(
        smp.encoders,
        "get_preprocessing_params",
        lambda *_: {"mean": [127.5] * 3, "std": [255.0] * 3, "input_range": [0, 255], "input_space": "RGB"},
    )
    segmenter = build_segmenter("unet", encoder, classes=2, weights=weights)
    assert hub.asked == [argument]
    assert all((parameter == 0.5).all() for parameter in segmenter.encoder.parameters())
    assert segmenter.describe()["mean"] == ([0.5, 0.5, 0.5] if encoder == "resnet18" else [0.485, 0.456, 0.406])


def test_without_network_a_file_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmenter_module.smp, "create_model", Hub(reachable=False))
    with pytest.raises(UserError, match=r"cannot be had from the hub.*path of a weights file"):
        build_segmenter("unet", "resnet18", classes=2, weights="imagenet")
