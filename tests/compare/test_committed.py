"""The committed tables are what today's code makes of the committed runs."""

import re
from pathlib import Path

import pytest

from suture.compare.compare import write_tables

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in RESULTS.glob("*/plan.json")))
def test_the_tables_are_those_of_the_runs(folder: str, tmp_path: Path) -> None:
    for path in write_tables(RESULTS / folder, tmp_path):
        committed = RESULTS / folder / path.name
        mend = f"make it again: suture compare docs/results/{folder}"
        assert committed.exists(), mend
        if path.suffix != ".png":
            assert without_pictures(path) == without_pictures(committed), mend


def without_pictures(file: Path) -> str:
    """Its text; a picture's bytes are not the same with every version of the libraries that draw and pack it."""
    return re.sub('base64,[^"]*', "", file.read_bytes().decode("utf-8"))
