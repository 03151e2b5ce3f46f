"""The picture of docs/explanation/stitch.md can be made of any dataset."""

import runpy
import sys
from pathlib import Path

import cv2
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs/images/stitch_views.py"


def test_draws_what_a_step_of_stitch_sees(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "views.png"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(dataset), str(out)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "of the labelled pixels are not learnt" in capsys.readouterr().out
    picture = cv2.imread(str(out))
    assert picture is not None
    assert picture.std() > 20
