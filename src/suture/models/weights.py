"""Whole segmenters on disk: safetensors for the weights, a plain description for the rest."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save

from suture.errors import UserError
from suture.files import replacing
from suture.models.pretrained import read_tensors
from suture.models.segmenter import Segmenter


def save_model(segmenter: Segmenter, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a segmenter's weights and buffers; `metadata` (strings) goes into the file's header.

    >>> save_model(segmenter, Path("model.safetensors"), {"dataset": "cadis"})  # doctest: +SKIP
    >>> same = load_model(Path("model.safetensors"), segmenter.describe())  # doctest: +SKIP
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in segmenter.state_dict().items()}
    with replacing(path) as temporary:
        # Not save_file: its files are for the owner only, and its errors hide a full disk.
        temporary.write_bytes(save(tensors, dict(metadata or {})))


def load_model(path: Path, description: Mapping[str, Any]) -> Segmenter:
    """The segmenter that `save_model` wrote, on the CPU and in eval mode; `description` is its `describe()`."""
    tensors = read_tensors(path)
    segmenter = Segmenter.from_description(description)
    try:
        segmenter.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(
            f"{path} does not fit its description ({description['architecture']}, {description['encoder']}, "
            f"{description['classes']} classes): {' '.join(str(error).split())[:200]}; "
            "keep the two files of a run together."
        ) from error
    return segmenter.eval()


def fingerprint(path: Path) -> dict[str, str]:
    """Name and SHA-256 of a weights file, as a run's `data.json` keeps them."""
    try:
        with path.open("rb") as file:
            return {"name": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise UserError(f"weights: {path} cannot be read ({error.strerror}); check the path.") from error
