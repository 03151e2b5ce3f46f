"""The picture of docs/method.md can be made of any dataset."""

import subprocess
import sys
from pathlib import Path

import cv2

SCRIPT = Path(__file__).resolve().parents[2] / "docs/images/stitch_views.py"


def test_draws_what_a_step_of_stitch_sees(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "views.png"
    command = [sys.executable, str(SCRIPT), str(dataset), str(out)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "of the labelled pixels are not learnt" in printed
    picture = cv2.imread(str(out))
    assert picture is not None
    assert picture.std() > 20
