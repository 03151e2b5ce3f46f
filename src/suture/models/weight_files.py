"""Files of weights, as far as they can be told without torch, which takes seconds to load."""

import hashlib
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import suffix_of

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
"""The two files of a finished model; they stay side by side."""
TRAINED_ON = "trained_on"
"""The one metadata entry of a run's weights file: JSON with dataset, view and how videos were told apart."""
FILE_SUFFIXES = (".safetensors", ".pth", ".pt", ".ckpt", ".bin")


def is_file(weights: str | Path) -> bool:
    """Whether `weights` names a file rather than weights of the hub."""
    return isinstance(weights, Path) or "/" in weights or "\\" in weights or suffix_of(weights) in FILE_SUFFIXES


def fingerprint(path: Path) -> dict[str, str]:
    """Name and SHA-256 of a weights file, as a run's `data.json` keeps them."""
    try:
        with path.open("rb") as file:
            return {"name": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise UserError(f"weights: {path} cannot be read ({error.strerror}); check the path.") from error
