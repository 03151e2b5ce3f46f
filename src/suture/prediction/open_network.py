"""Finished models from disk: a run folder, a weights file or an ONNX file as one kind of network."""

import os
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from suture.core.errors import UserError
from suture.core.io import parse_json, suffix_of
from suture.core.schemas import TrainingNotes, validate_shape
from suture.models.inference import inference_network
from suture.models.model_files import DESCRIPTION, TRAINED_ON, WEIGHTS, fingerprint
from suture.prediction.input_clip import read_training_view
from suture.prediction.network import Network, class_table
from suture.prediction.onnx_network import open_onnx


def open_network(path: Path, device: str = "auto") -> Network:
    """Open the network of a run folder, of a `model.safetensors` with its `model.json`, or of an ONNX file."""
    if not (path.is_dir() or (path.exists() and suffix_of(path) in (".onnx", ".safetensors"))):
        raise UserError(
            f"{path} does not exist or is no model: expected a run folder, a {WEIGHTS} with its {DESCRIPTION}, or an "
            "ONNX file."
        )
    if suffix_of(path) == ".onnx":
        return open_onnx(path, find_device(device), required=device != "auto")
    # Here, because an ONNX file needs none of the libraries of networks, which take seconds to import.
    from suture.models.model import Model

    model = Model.load(path)
    where = find_device(device)
    segmenter = inference_network(model.segmenter.to(where).eval(), model.size).requires_grad_(False)
    weights = path / WEIGHTS if path.is_dir() else path
    notes = read_training_notes(weights)
    return Network(
        segmenter,
        class_table(model.names, model.colors, notes["mirror"]),
        model.size,
        where,
        fingerprint(weights),
        view=read_training_view(notes["view"], str(weights)),
        videos_by=notes["videos_by"],
        deinterlace=notes["deinterlace"],
    )


def read_training_notes(weights: Path) -> dict[str, Any]:
    """Read from a weights file which view its training used, and how images were grouped into videos."""
    with safe_open(weights, framework="pt") as file:
        notes = parse_json((file.metadata() or {}).get(TRAINED_ON, "{}"), str(weights))
    validate_shape(weights, notes, TrainingNotes)
    return TrainingNotes.model_validate(notes).model_dump(mode="json")


def find_device(name: str) -> torch.device:
    """Return a device by its name; `auto` is the GPU with this process's local rank, if there is one."""
    if name == "auto":
        if torch.cuda.is_available():
            number = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)
            return torch.device("cuda", number % torch.cuda.device_count())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(f"The device {name!r} is not available: expected auto, cpu, cuda, cuda:1 or mps.") from None
    return device
