"""Files of weights and models; imports no torch, which takes seconds to load."""

import hashlib
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import require_regular_file, suffix_of

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
"""The two files of a finished model, in one folder."""
TRAINED_ON = "trained_on"
"""Metadata entry of a run's weights file: JSON with dataset, view and the rule `videos_by`."""
WEIGHTS_SUFFIXES = (".safetensors", ".pth", ".pt", ".ckpt", ".bin")


def is_weights_file(weights: str | Path) -> bool:
    """Check if `weights` names a file rather than weights of the hub."""
    return isinstance(weights, Path) or "/" in weights or "\\" in weights or suffix_of(weights) in WEIGHTS_SUFFIXES


def fingerprint(path: Path) -> dict[str, str]:
    """Name and SHA-256 of a weights file."""
    require_regular_file(path)
    try:
        with path.open("rb") as file:
            return {"name": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise UserError(f"weights: {path} cannot be read ({error.strerror}); check the path.") from error
