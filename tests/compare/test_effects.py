"""The effects that docs/method.md states are those of the committed runs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_stated_effects_are_what_the_runs_say() -> None:
    command = [sys.executable, "docs/results/effects.py", "docs/results/vocalfolds-recipe"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {cells[1].strip(): [cell.split("±")[0].strip() for cell in cells[2:6]] for cells in rows(said)}
    stated = {
        cells[1].strip(): [cell.strip() for cell in cells[2:6]] for cells in rows((ROOT / "docs/method.md").read_text())
    }
    assert stated["`consistency` 1 → 2"] == found["consistency: 1.0 → 2.0"]
    assert stated["`propagate` 0 → 0.5"] == found["propagate: 0.0 → 0.5"]
    assert stated["`contrast` 0 → 0.1"] == found["contrast: 0.0 → 0.1"]


def rows(text: str) -> list[list[str]]:
    return [line.split("|") for line in text.splitlines() if line.startswith("| ") and line.count("|") > 5]
