"""The runs that `conftest.py` makes."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Runs:
    """Their folders."""

    supervised: Path
    pgvcl: Path
    unmasked: Path
    """Masks only on labelled frames: nothing can be scored."""
