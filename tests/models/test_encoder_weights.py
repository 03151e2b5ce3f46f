import socket
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import segmentation_models_pytorch as smp
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.models.encoder_weights import hub_access, load_encoder_weights, read_tensors, use_caffe_layout
from suture.models.model_files import is_weights_file
from suture.models.segmenter import build_segmenter


def encoder(name: str = "resnet18", output_stride: int = 32) -> nn.Module:
    return smp.encoders.get_encoder(name, weights=None, output_stride=output_stride).eval()


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.fixture(scope="module")
def source() -> nn.Module:
    torch.manual_seed(1)
    return encoder()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("prefix", ["", "module.", "encoder.", "module.model.", "backbone."])
def test_prefixes_are_no_hindrance(source: nn.Module, tmp_path: Path, prefix: str, suffix: str) -> None:
    tensors = {f"{prefix}{name}": tensor for name, tensor in source.state_dict().items()}
    path = tmp_path / f"weights{suffix}"
    save_file(tensors, path) if suffix == ".safetensors" else torch.save({"state_dict": tensors, "epoch": 3}, path)
    target = encoder()
    assert not same_weights(target, source)
    load_encoder_weights(target, path)
    assert same_weights(target, source)


def test_half_precision_becomes_fp32_and_counters_and_heads_are_optional(source: nn.Module, tmp_path: Path) -> None:
    tensors = {
        name: tensor.half() if tensor.dim() == 4 else tensor
        for name, tensor in source.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    tensors |= {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    save_file(tensors, tmp_path / "half.safetensors")
    target = encoder()
    load_encoder_weights(target, tmp_path / "half.safetensors")
    loaded = target.state_dict()
    assert loaded["conv1.weight"].dtype == torch.float32
    assert torch.equal(loaded["conv1.weight"], tensors["conv1.weight"].float())
    assert loaded["bn1.num_batches_tracked"] == 0


def without(tensors: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def test_what_does_not_fit_is_listed(source: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    tensors = dict(source.state_dict())
    target = encoder()
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}

    def refusal(changed: dict[str, Tensor]) -> str:
        save_file(changed, path)
        with pytest.raises(UserError) as error:
            load_encoder_weights(target, path)
        assert all(torch.equal(before[name], tensor) for name, tensor in target.state_dict().items())
        return str(error.value)

    assert "2 missing (bn1.weight, layer4.1.conv2.weight)" in refusal(
        without(tensors, "bn1.weight", "layer4.1.conv2.weight")
    )
    assert "1 unexpected (layer5.weight)" in refusal(tensors | {"layer5.weight": torch.zeros(1)})
    # A name of a classifier does not make a convolution one.
    assert "1 unexpected (head.weight)" in refusal(tensors | {"head.weight": torch.zeros(1, 1, 3, 3)})
    assert "bn1.weight [3] for [64]" in refusal(tensors | {"bn1.weight": torch.zeros(3)})
    assert "twice" in refusal(tensors | {"module.bn1.weight": torch.zeros(64)})
    many = refusal({name: tensor for name, tensor in tensors.items() if not name.startswith("layer")})
    assert "95 missing" in many
    assert len(many) < 600


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"no header")
    pickled = tmp_path / "whole_model.pth"
    torch.save(nn.Linear(1, 1), pickled)
    truncated = tmp_path / "truncated.pth"
    torch.save({"a": torch.zeros(1000)}, truncated)
    truncated.write_bytes(truncated.read_bytes()[:500])
    empty = tmp_path / "empty.pth"
    empty.write_bytes(b"")
    number = tmp_path / "number.pth"
    torch.save({"epoch": 3}, number)
    text = tmp_path / "text.pth"
    text.write_text("format: 1\nname: synthetic\n")
    for path in (broken, pickled, truncated, empty, number, text, tmp_path / "absent.pth", tmp_path):
        with pytest.raises(UserError, match=path.name) as caught:
            read_tensors(path)
        assert "weights_only` set to `False`" not in str(caught.value)  # PyTorch's advice to run what is in the file


def test_files_and_names_of_the_hub_are_distinguished() -> None:
    assert not any(map(is_weights_file, ("imagenet", "imagenet+5k", "noisy-student")))
    assert all(map(is_weights_file, ("resnet50.pth", "weights/resnet50", Path("resnet50"), "r.safetensors", "R.PTH")))


@pytest.mark.parametrize("name", ["convnext_atto", "mobilenetv3_small_100", "resnet18"])
def test_whole_models_of_timm_load_into_their_encoder(tmp_path: Path, name: str) -> None:
    """timm renames stages (stages.0 -> stages_0) and drops the head when it makes an encoder."""
    whole: Any = timm.create_model(name, pretrained=False)
    path = tmp_path / "timm.safetensors"
    tensors = whole.state_dict()
    if name.startswith("mobilenet"):  # its 1x1 convolution before the classifier is not counted as a classifier
        tensors = {key: tensor for key, tensor in tensors.items() if not key.startswith("conv_head")}
    save_file(tensors, path)
    target = encoder(f"tu-{name}")
    load_encoder_weights(target, path)
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = whole.eval().forward_intermediates(images, intermediates_only=True)[-1]
        torch.testing.assert_close(target(images)[-1], expected)


@pytest.mark.parametrize(("output_stride", "moved"), [(8, 1), (16, 2), (32, 3)])
def test_caffe_layout_moves_the_strides(output_stride: int, moved: int) -> None:
    network = encoder("resnet50", output_stride)
    use_caffe_layout(network)
    blocks = [module for module in network.modules() if hasattr(module, "conv3")]
    assert all(block.conv2.stride == (1, 1) for block in blocks)
    assert sum(block.conv1.stride == (2, 2) for block in blocks) == moved
    with pytest.raises(UserError, match="caffe"):
        use_caffe_layout(network)


def test_caffe_layout_and_dilation_agree() -> None:
    """A Caffe ResNet dilated has, at every fourth pixel, exactly the features of the undilated one."""
    torch.manual_seed(0)
    fine, coarse = encoder("resnet50", 8), encoder("resnet50", 32)
    coarse.load_state_dict(dict(fine.state_dict()))
    images = torch.rand(1, 3, 96, 96)
    with torch.no_grad():
        assert not torch.allclose(fine(images)[-1][..., ::4, ::4], coarse(images)[-1], rtol=1e-2, atol=1e-2)
        use_caffe_layout(fine)
        use_caffe_layout(coarse)
        torch.testing.assert_close(fine(images)[-1][..., ::4, ::4], coarse(images)[-1], rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def weights(shared: Path) -> Path:
    folder = shared / "weights"
    if not folder.is_dir():
        pytest.skip("needs the weights in ../shared/weights, which are not here")
    return folder


def test_shared_resnet50(weights: Path) -> None:
    """It fits, and without the Caffe layout the features are different ones, as its README says: cosine 0.79."""
    path = weights / "resnet50_imagenet_caffe.safetensors"
    images = smooth_images(128)
    features = []
    for layout in ("caffe", "torchvision"):
        segmenter = build_segmenter("deeplabv3", "resnet50", 2, output_stride=16, weights=path, layout=layout).eval()
        with torch.no_grad():
            features.append(segmenter.encoder((images - segmenter.mean) / segmenter.std)[-1])
    assert segmenter.encoder.state_dict()["layer4.2.conv3.weight"].dtype == torch.float32
    cosine = nn.functional.cosine_similarity(*features).mean()
    assert 0.7 < cosine < 0.87


def test_shared_hiera(weights: Path) -> None:
    """UPerNet on SAM 2's encoder: it fits, takes odd sizes, learns, and its features are those of timm."""
    path = weights / "sam2_hiera_tiny.safetensors"
    segmenter = build_segmenter("upernet", "tu-sam2_hiera_tiny", classes=2, weights=str(path))
    assert segmenter(torch.rand(2, 3, 70, 50)).shape == (2, 2, 70, 50)
    segmenter(torch.rand(2, 3, 64, 64)).mean().backward()
    parameters = dict(segmenter.encoder.named_parameters())
    assert all(parameter.grad is not None for parameter in parameters.values())
    assert (segmenter.stride, segmenter.features_channels) == (4, 256)


def smooth_images(side: int) -> Tensor:
    """Pictures with the smoothness of natural ones: noise at several scales."""
    torch.manual_seed(0)
    scales = [
        nn.functional.interpolate(torch.rand(2, 3, n, n), (side, side), mode="bicubic") / n**0.3 for n in (4, 8, 16, 32)
    ]
    picture = torch.stack(scales).sum(0)
    return (picture - picture.amin()) / (picture.amax() - picture.amin())


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("offline")
def test_an_unreachable_hub_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with hub_access():
        assert constants.HF_HUB_OFFLINE
    with pytest.raises(UserError, match=r"huggingface\.co cannot be reached") as caught:
        build_segmenter("deeplabv3", "resnet18", 2, weights="imagenet")
    assert caught.value.__suppress_context__
    assert not constants.HF_HUB_OFFLINE
    build_segmenter("deeplabv3", "resnet18", 2)  # needs no hub


@pytest.mark.usefixtures("offline")
def test_behind_a_proxy_the_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    with hub_access():
        assert not constants.HF_HUB_OFFLINE


def test_a_masked_autoencoder_loads_into_a_transformer_with_another_position_grid(tmp_path: Path) -> None:
    """As training scripts save it: with their options and a decoder for pretraining."""
    source = timm.create_model("test_vit", img_size=224, num_classes=0)
    pretraining = {"mask_token": torch.zeros(1, 1, 8), "decoder_blocks.0.norm1.weight": torch.zeros(8)}
    path = tmp_path / "mae.pth"
    torch.save({"model": source.state_dict() | pretraining, "args": Namespace(lr=1e-3)}, path)
    encoder = build_segmenter("dpt", "tu-test_vit", weights=path).encoder
    assert encoder.model.pos_embed.shape != source.pos_embed.shape
    assert same_weights(encoder.model.blocks, source.blocks)
