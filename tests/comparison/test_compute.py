"""The operations that docs/results.md states are those of the committed runs."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_stated_operations_are_those_of_the_runs() -> None:
    script = runpy.run_path(str(ROOT / "docs/results/compute.py"))
    printed = script["table"](ROOT / "docs/results/vocalfolds").splitlines()
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"\n## What a run costs\n(.*?)\n## ", page, re.DOTALL)
    stated = [line for line in section.splitlines() if line.startswith("|")]
    assert len(stated) > 10
    assert set(stated) <= set(printed)
