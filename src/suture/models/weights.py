"""Whole segmenters on disk: safetensors for the weights, a plain description for the rest."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save

from suture.core.errors import UserError
from suture.core.io import check_format, read_json, write_bytes, write_json
from suture.core.schemas import ModelRecord, validate_shape
from suture.models.pretrained import read_tensors
from suture.models.segmenter import Segmenter
from suture.models.weight_files import DESCRIPTION, WEIGHTS

MODEL_FORMAT = 1
"""The newest `model.json` this version reads."""


@dataclass(frozen=True)
class Model:
    """A finished segmenter and all that is needed to use it."""

    segmenter: Segmenter
    names: tuple[str, ...]
    """Of the classes 0 … n−1."""
    colors: tuple[tuple[int, int, int], ...]
    size: tuple[int, int]
    """Height and width of the images it was trained on."""

    def save(self, folder: Path, metadata: Mapping[str, str] | None = None) -> None:
        """Write the model's two files; `metadata` (strings) goes into the header of the weights."""
        save_model(self.segmenter, folder / WEIGHTS, metadata)
        classes = [{"name": name, "color": color} for name, color in zip(self.names, self.colors, strict=True)]
        description = {"segmenter": self.segmenter.describe(), "classes": classes, "size": self.size}
        write_json(folder / DESCRIPTION, {"format": MODEL_FORMAT, **description})

    @staticmethod
    def load(path: Path) -> "Model":
        """The model of a run folder, or of a weights file with its description beside it; on the CPU, in eval mode."""
        weights = path / WEIGHTS if path.is_dir() else path
        described = weights.with_suffix(".json")
        missing = next((file for file in (described, weights) if not file.is_file()), None)
        if missing:
            if path.is_dir() and (path / "config.yaml").exists():
                raise UserError(f"{path} has no finished model yet: run `suture train` on it to the end.")
            found = "holds no" if path.is_dir() else "has no"
            raise UserError(
                f"{path} {found} {missing.name}{'' if path.is_dir() else ' beside it'}: give a run's folder."
            )
        content = read_json(described)
        check_format(described, content.get("format") if isinstance(content, dict) else None, MODEL_FORMAT)
        validate_shape(described, content, ModelRecord)
        names = tuple(entry["name"] for entry in content["classes"])
        colors = tuple((r, g, b) for r, g, b in (entry["color"] for entry in content["classes"]))
        height, width = content["size"]
        segmenter = load_model(weights, content["segmenter"])
        if segmenter.classes != len(names):
            raise UserError(
                f"{described} names {len(names)} classes, but its segmenter tells {segmenter.classes} apart: "
                "restore the file that the run wrote."
            )
        return Model(segmenter, names, colors, (height, width))


def save_model(segmenter: Segmenter, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a segmenter's weights and buffers; `metadata` (strings) goes into the file's header.

    >>> save_model(segmenter, Path("model.safetensors"), {"dataset": "cadis"})  # doctest: +SKIP
    >>> same = load_model(Path("model.safetensors"), segmenter.describe())  # doctest: +SKIP
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in segmenter.state_dict().items()}
    # Not save_file: its files are for the owner only, and its errors hide a full disk.
    write_bytes(path, save(tensors, dict(metadata or {})))


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
