"""A dataset of two videos of three frames, for exports that label them."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image


def write_videos(root: Path) -> None:
    for video in "ab":
        (root / "videos" / video).mkdir(parents=True)
        for number in range(1, 4):
            Image.fromarray(np.zeros((6, 8, 3), np.uint8)).save(root / "videos" / video / f"{number:04d}.png")


def write_file(root: Path, masks: Any, **more: Any) -> None:
    file = {"videos": "videos", "masks": masks, "classes": [{"name": "grasper"}], "unpainted": "background"}
    (root / "dataset.yaml").write_text(yaml.safe_dump(file | {"view": "none"} | more))
