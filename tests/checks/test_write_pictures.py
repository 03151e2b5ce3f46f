"""Pictures of views, masks and shots are real images, for each video."""

from pathlib import Path

import cv2
import pytest

from suture.checks.write_pictures import write_pictures
from suture.core.errors import UserError
from suture.data.datasets import load_dataset
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic


def test_pictures(tmp_path: Path) -> None:
    settings = SyntheticSettings(cases=2, frames=12, width=64, height=64)
    dataset = load_dataset(write_synthetic(tmp_path / "data", settings, container="png", progress=False))

    written = write_pictures(dataset, tmp_path / "pictures")

    assert {path.name for path in written} == {
        f"{v.id}-{kind}.png" for v in dataset for kind in ("view", "shots", "masks")
    }
    assert all(cv2.imread(str(path)) is not None for path in written)
    with pytest.raises(UserError, match="not an empty folder"):
        write_pictures(dataset, tmp_path / "pictures")
