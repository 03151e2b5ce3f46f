"""Small datasets on disk for the tests of drafts and lists."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike

WIDTH, HEIGHT = 64, 48


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), pixels[..., ::-1] if pixels.ndim == 3 else pixels)


def write_frames(root: Path, *names: str) -> None:
    """Frames of different smooth blobs."""
    for name in names:
        blobs = np.random.default_rng(list(name.encode())).integers(60, 220, (6, 8, 3), np.uint8)
        write(root / f"{name}.png", cv2.resize(blobs, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC))


def write_masks(root: Path, *names: str, values: ArrayLike = (2, 1)) -> None:
    """Masks of the first value, with a bar of each other one."""
    palette = np.array(values, np.uint8)
    mask = np.zeros((HEIGHT, WIDTH), np.intp)
    for position in range(1, len(palette)):
        mask[position * 6 : position * 6 + 6, 10:50] = position
    for name in names:
        write(root / f"{name}.png", palette[mask])


def numbered(*videos: str, count: int = 3, separator: str = "/") -> list[str]:
    """Names of frames, by default in a folder for each video."""
    return [f"{video}{separator}{index:04}" for video in videos for index in range(count)]


def write_labelme(path: Path, *labels: str) -> None:
    shapes = [{"label": label, "points": [[1, 1], [30, 1], [30, 30]]} for label in labels]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"shapes": shapes, "imageWidth": WIDTH, "imageHeight": HEIGHT}))


def write_coco(path: Path, frame: str, label: str = "duct") -> None:
    """A file with one triangle on one frame."""
    content: dict[str, Any] = {
        "images": [{"id": 1, "file_name": frame, "width": WIDTH, "height": HEIGHT}],
        "categories": [{"id": 1, "name": label}],
        "annotations": [{"image_id": 1, "category_id": 1, "segmentation": [[1, 1, 30, 1, 30, 30]]}],
    }
    path.write_text(json.dumps(content))
