"""Finished models on disk: weights as safetensors, the rest as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save

from suture.core.errors import UserError
from suture.core.io import check_format, read_json, write_bytes, write_json
from suture.core.schemas import ModelRecord, validate_shape
from suture.models.encoder_weights import read_tensors
from suture.models.model_files import DESCRIPTION, WEIGHTS
from suture.models.segmenter import Segmenter

MODEL_FORMAT = 1
"""Format number of `model.json`."""


@dataclass(frozen=True)
class Model:
    """A trained segmenter with its classes and its training size."""

    segmenter: Segmenter
    names: tuple[str, ...]
    """Class names, by class id."""
    colors: tuple[tuple[int, int, int], ...]
    size: tuple[int, int]
    """Height and width of the training images."""

    def save(self, folder: Path, metadata: Mapping[str, str] | None = None) -> None:
        """Write both files of the model; `metadata` goes into the header of the weights."""
        save_model(self.segmenter, folder / WEIGHTS, metadata)
        classes = [{"name": name, "color": color} for name, color in zip(self.names, self.colors, strict=True)]
        description = {"segmenter": self.segmenter.describe(), "classes": classes, "size": self.size}
        write_json(folder / DESCRIPTION, {"format": MODEL_FORMAT, **description})

    @staticmethod
    def load(path: Path) -> "Model":
        """Load the model of a run folder, or of a weights file with its description beside it, in eval mode."""
        weights = path / WEIGHTS if path.is_dir() else path
        described = weights.with_suffix(".json")
        missing = next((file for file in (described, weights) if not file.is_file()), None)
        if missing:
            raise UserError(f"{missing} is missing: give the folder of a run whose training has finished.")
        content = read_json(described)
        check_format(described, content.get("format") if isinstance(content, dict) else None, MODEL_FORMAT)
        validate_shape(described, content, ModelRecord)
        names = tuple(entry["name"] for entry in content["classes"])
        colors = tuple((r, g, b) for r, g, b in (entry["color"] for entry in content["classes"]))
        height, width = content["size"]
        segmenter = load_model(weights, content["segmenter"])
        if segmenter.classes != len(names):
            raise UserError(f"{described} names {len(names)} classes, but the weights have {segmenter.classes}.")
        return Model(segmenter, names, colors, (height, width))


def save_model(segmenter: Segmenter, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a segmenter's weights and buffers; `metadata` goes into the file's header.

    >>> save_model(segmenter, Path("model.safetensors"), {"dataset": "cadis"})  # doctest: +SKIP
    >>> same = load_model(Path("model.safetensors"), segmenter.describe())  # doctest: +SKIP
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in segmenter.state_dict().items()}
    # Not save_file: it makes files that only the owner can read, and its errors hide a full disk.
    write_bytes(path, save(tensors, dict(metadata or {})))


def load_model(path: Path, description: Mapping[str, Any]) -> Segmenter:
    """Load the weights that `save_model` wrote into the segmenter of a `describe()`, on the CPU and in eval mode."""
    tensors = read_tensors(path)
    segmenter = Segmenter.from_description(description)
    try:
        segmenter.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} does not fit {path.with_suffix('.json').name} beside it: {reason}") from error
    return segmenter.eval()
