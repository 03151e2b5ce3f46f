import hashlib
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from suture.core.errors import UserError
from suture.models.model import load_model, save_model
from suture.models.model_files import fingerprint
from suture.models.segmenter import Segmenter, build_segmenter


@pytest.fixture(scope="module")
def segmenter() -> Segmenter:
    return build_segmenter("unet", "mobilenet_v2", classes=2).eval()


def test_metadata_stand_in_the_header(segmenter: Segmenter, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(segmenter, path, {"dataset": "cadis"})
    with safe_open(path, "pt") as file:
        assert file.metadata()["dataset"] == "cadis"
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_failed_save_leaves_the_old_file(segmenter: Segmenter, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(segmenter, path)
    before = fingerprint(path)
    with pytest.raises(Exception, match="str"):
        save_model(segmenter, path, {"dataset": 3})  # type: ignore[dict-item]
    assert fingerprint(path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_layout_survives(tmp_path: Path) -> None:
    """Where the strides are is not in the weights: it has to come back by the description."""
    segmenter = build_segmenter("deeplabv3", "resnet50", classes=2, layout="caffe").eval()
    segmenter.mean.fill_(0.25)
    save_model(segmenter, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors", segmenter.describe())
    images = torch.rand(1, 3, 24, 24)
    with torch.no_grad():
        assert torch.equal(again(images), segmenter(images))


def test_weights_of_another_model_are_refused(segmenter: Segmenter, tmp_path: Path) -> None:
    save_model(segmenter, tmp_path / "model.safetensors")
    description = segmenter.describe() | {"classes": 3}
    with pytest.raises(UserError, match=r"model\.safetensors does not fit"):
        load_model(tmp_path / "model.safetensors", description)
    with pytest.raises(UserError, match=r"absent\.safetensors"):
        load_model(tmp_path / "absent.safetensors", description)


def test_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"abc")
    assert fingerprint(path) == {"name": "weights.pth", "sha256": hashlib.sha256(b"abc").hexdigest()}
    with pytest.raises(UserError, match="absent"):
        fingerprint(tmp_path / "absent.pth")
