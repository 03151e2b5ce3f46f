"""Reader of files that `torch.save` wrote: weights from elsewhere, checkpoints of a run."""

import pickle
import struct
import zipfile
import zlib
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from suture.core.errors import UserError
from suture.core.io import require_regular_file

DAMAGE = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors of PyTorch's reader and of `load_state_dict`; which one depends on the byte that is wrong."""


def read_torch_file(path: Path) -> Any:
    """Read tensors and plain values onto the CPU; no code in the file is run."""
    require_regular_file(path)
    try:
        with torch.serialization.safe_globals([Namespace]):  # of training scripts' options
            return torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGE as error:
        # Only the first sentence: PyTorch goes on with advice to run any code in the file.
        reason = str(error).split("\n")[0].split(". ")[0][:120] or type(error).__name__
        raise UserError(
            f"weights: {path} cannot be read ({reason}); expected a .safetensors file or a saved state_dict()."
        ) from error
