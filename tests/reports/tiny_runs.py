"""Folders of the runs that `conftest.py` makes."""

from dataclasses import dataclass
from pathlib import Path

PLANTED = ("patient-doe", "planted-user", "planted-host")
"""Names of a folder, the user and the host, which no output may hold."""


@dataclass(frozen=True)
class Runs:
    """Run folders; tests that change one take a copy."""

    supervised: Path
    pgvcl: Path
    unmasked: Path
    """Masks only on labelled frames, so nothing can be scored."""
    data: Path
