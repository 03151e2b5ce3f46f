"""The scores and paired differences that docs/results.md states are those of the committed runs."""

import csv
import io
import re
import runpy
import statistics
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = "docs/results/vocalfolds"
SCORES = ("new videos, mIoU", "new videos, per frame", "completion, mIoU", "completion, per frame")
PLACES = {"every 20th": "every-20", "every 10th": "every-10", "both": "all"}
ROW = re.compile(r"^\| (\S+) − (\S+) \| (every 20th|every 10th|both) \| (.*) \|$", re.MULTILINE)


@cache
def pairs(method: str, other: str) -> str:
    """What the script prints; in this process, as another one would load the libraries anew for every pair."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr("sys.argv", ["pairs.py", str(ROOT / FOLDER), method, other])
        runpy.run_path(str(ROOT / "docs/results/pairs.py"), run_name="__main__")
    return printed.getvalue()


def test_the_stated_differences_are_those_of_the_runs() -> None:
    rows = ROW.findall((ROOT / "docs/results.md").read_text(encoding="utf-8"))
    assert len(rows) > 5
    for method, other, place, stated in rows:
        printed = pairs(method, other)
        for score, cell in zip(SCORES, stated.split(" | "), strict=True):
            found = re.search(rf": {score}\n(?:  .*\n)*?  {PLACES[place]} +(.*?\])", printed)
            assert found, (method, other, score)
            assert re.sub(r"\s+", "", found[1]) == re.sub(r"\s+", "", cell.replace("−", "-")), (method, other, score)


SCORED = re.compile(r"^\| (\S+) \| (every 20th|every 10th|all) \| (\d) \| (.*) \|$", re.MULTILINE)
SETS = [(which, key) for which in ("test", "completion") for key in ("miou", "miou_frames")]


def test_the_stated_scores_are_those_of_the_runs() -> None:
    """Whose means and deviations are rounded once; the committed CSV is held against them elsewhere."""
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    section = text.split("\n## Stitch on the test sequences\n")[1].split("\n## ")[0].replace("**", "")
    with (ROOT / FOLDER / "runs.csv").open(newline="") as file:
        runs = list(csv.DictReader(file))
    rows = SCORED.findall(section)
    assert len(rows) > 10
    for method, place, seeds, stated in rows:
        own = [run for run in runs if (run["method"], run["labelling"]) == (method, PLACES.get(place, place))]
        for (which, key), cell in zip(SETS, stated.split(" | "), strict=True):
            values = [100 * float(run[key]) for run in own if run["set"] == which]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            assert cell == (f"{statistics.mean(values):.1f}{spread}" if values else "–"), (method, place, which, key)
            assert len(values) in (int(seeds), 0)


def test_methods_without_a_pair_are_told() -> None:
    command = [sys.executable, "docs/results/pairs.py", FOLDER, "stitch-upright", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no dataset, labelling and seed of both stitch-upright and nothing" in done.stderr


@pytest.mark.parametrize("score", ["NSD", "IoU of pathology", "mIoU of seq4"])
def test_also_of_outlines_classes_and_videos(score: str) -> None:
    assert f"stitch-upright − twice: new videos, {score}\n" in pairs("stitch-upright", "twice")
