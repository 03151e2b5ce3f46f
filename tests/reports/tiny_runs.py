"""Folders of the runs that `conftest.py` makes."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Runs:
    """Run folders; tests that change one take a copy."""

    supervised: Path
    pgvcl: Path
    unmasked: Path
    """Masks only on labelled frames, so nothing can be scored."""
    data: Path
