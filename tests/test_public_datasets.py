"""The lines of docs/how-to/public-datasets.md bring generated files of those layouts in as they should be."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from suture.checks.check import check
from suture.checks.draft import draft_dataset_file, write_draft
from suture.data.dataset import splits_by_name
from suture.data.datasets import load_dataset

NUMBERS = itertools.count()
PAGE = Path(__file__).parents[1] / "docs/how-to/public-datasets.md"


def lines_of(title: str) -> tuple[str, str]:
    """The language and the text of the code that stands under a heading."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(title))
    language, code = re.findall(r"^```(bash|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    return language, code


def scene(size: tuple[int, int] = (48, 64)) -> np.ndarray:
    """A frame like no other, and no flat picture, as masks are."""
    return np.random.default_rng(next(NUMBERS)).integers(40, 216, (*size, 3), dtype=np.uint8)


def mask(value: int, size: tuple[int, int] = (48, 64), around: int = 0) -> np.ndarray:
    image = np.full(size, around, np.uint8)
    image[10:30, 20:40] = value
    return image


def write(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image)


def write_video(path: Path, frames: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 60, (64, 48))
    for _ in range(frames):
        writer.write(scene())
    writer.release()


def cholecseg8k(root: Path) -> None:
    for clip in ("video01_00080", "video01_00160", "video09_00100", "video12_15750"):
        for number in range(3):
            frame = root / clip.split("_")[0] / clip / f"frame_{number + 80}_endo"
            write(frame.with_suffix(".png"), scene())
            write(frame.with_name(f"{frame.name}_watershed_mask.png"), mask(31, around=11))
            write(frame.with_name(f"{frame.name}_mask.png"), np.dstack([mask(3, around=7), mask(4), mask(5)]))


def endoscapes(root: Path) -> None:
    for split, videos in {"train": (1, 2), "val": (60,), "test": (70, 71)}.items():
        names = [f"{video}_{moment}.jpg" for video in videos for moment in (14100, 14125, 14150)]
        for name in names:
            write(root / split / name, scene())
        for name in names[::3]:
            write(root / f"{split}_seg" / name, scene())
        write_coco(root / f"{split}_seg/annotation_coco.json", names[::3])


def write_coco(path: Path, names: list[str]) -> None:
    """A file of two shapes on each image."""
    categories = [{"id": 1, "name": "gallbladder"}, {"id": 2, "name": "tool"}]
    images = [{"id": i, "file_name": name, "height": 48, "width": 64} for i, name in enumerate(names)]
    shapes = [
        {
            "id": 2 * i + k,
            "image_id": i,
            "category_id": k + 1,
            "segmentation": [[5 + 20 * k, 5, 20 + 20 * k, 5, 9, 30]],
        }
        for i in range(len(images))
        for k in range(2)
    ]
    path.write_text(json.dumps({"images": images, "annotations": shapes, "categories": categories}))


def roboflow(root: Path) -> None:
    for split, videos in {"train": ("op1", "op2", "op3"), "valid": ("op3", "op4"), "test": ("op3", "op5")}.items():
        names = [f"{video}_{moment:04d}_jpg.rf.{next(NUMBERS):032x}.jpg" for video in videos for moment in range(3)]
        for name in names:
            write(root / split / name, scene())
        write_coco(root / split / "_annotations.coco.json", names)


def sar_rarp50(root: Path) -> None:
    for video in ("train1/video_01", "train1/video_02", "train2/video_21", "test/video_41"):
        write_video(root / video / "video_left.avi", 130)
        for second in range(3):
            write(root / video / f"segmentation/{60 * second:09d}.png", mask(1))


def kvasir_instrument(root: Path) -> None:
    for split, names in {"train": "abcd", "test": "ef"}.items():
        (root / f"{split}.txt").write_text("\n".join(f"{name}0" for name in names))
        for number, name in enumerate(names):
            size = (48 + 2 * number, 64)
            write(root / f"images/{name}0.jpg", scene(size))
            write(root / f"masks/{name}0.png", mask(255, size))


def pascal_voc(root: Path) -> None:
    names = [f"{video}_{moment:06d}" for video in ("video01", "video02", "video03") for moment in (80, 160, 240)]
    for name in names:
        write(root / f"JPEGImages/{name}.jpg", scene())
        write(root / f"SegmentationClass/{name}.png", mask(15))
    (root / "ImageSets/Segmentation").mkdir(parents=True)
    for split, chosen in {"train": names[:6], "val": names[6:], "trainval": names}.items():
        (root / f"ImageSets/Segmentation/{split}.txt").write_text("\n".join(chosen) + "\n")


def robust_mis(root: Path) -> None:
    for clip in ("Proctocolectomy/1/100", "Proctocolectomy/1/200", "Rectal resection/2/300", "Rectal resection/3/400"):
        folder = root / "Training" / clip
        write_video(folder / "10s_video.avi", 25)
        write(folder / "raw.png", scene())
        write(folder / "instrument_instances.png", mask(1))


@pytest.mark.parametrize(
    ("title", "make", "cases", "labelled"),
    [
        ("CholecSeg8k", cholecseg8k, {"video01": 2, "video09_video09_00100": 1, "video12_video12_15750": 1}, 12),
        ("Endoscapes", endoscapes, {"train_1": 1, "train_2": 1, "val_60": 1, "test_70": 1, "test_71": 1}, 5),
        (
            "Roboflow",
            roboflow,
            {"train_op1": 1, "train_op2": 1, "op3": 3, "valid_op4": 1, "test_op5": 1},
            21,
        ),
        (
            "SAR-RARP50",
            sar_rarp50,
            {"train_video_01": 1, "train_video_02": 1, "train_video_21": 1, "test_video_41": 1},
            12,
        ),
        (
            "Kvasir-Instrument",
            kvasir_instrument,
            dict.fromkeys("abcdef", 1),
            6,
        ),
        ("Pascal VOC", pascal_voc, {"video01": 1, "video02": 1, "video03": 1}, 9),
        (
            "ROBUST-MIS",
            robust_mis,
            {"Proctocolectomy_1": 2, "Rectal-resection_2_300": 1, "Rectal-resection_3_400": 1},
            4,
        ),
    ],
)
def test_a_download_becomes_a_dataset(
    title: str, make: Callable[[Path], None], cases: dict[str, int], labelled: int, tmp_path: Path
) -> None:
    make(tmp_path)
    language, code = lines_of(title)
    command = ["bash", "-ec", code] if language == "bash" else [sys.executable, "-c", code]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PATH": path})
    assert "rror" not in done.stderr, done.stderr
    file = tmp_path / "dataset.yaml"
    text = file.read_text() if file.exists() else draft_dataset_file(tmp_path)
    file.write_text(text.replace("# unpainted: background", "unpainted: background"))
    dataset = load_dataset(tmp_path)
    assert {case: len(videos) for case, videos in dataset.cases.items()} == cases
    assert sum(len(video.masks) for video in dataset) == labelled
    said = splits_by_name({case: case for case in dataset.cases})
    assert all(videos[0].split == said.get(case, videos[0].split) for case, videos in dataset.cases.items())
    fatal = [problem for problem in check(dataset).problems if problem.severity == "fatal"]
    assert not fatal


def test_masks_lie_on_the_frames_whose_numbers_they_have(tmp_path: Path) -> None:
    sar_rarp50(tmp_path)
    subprocess.run(["bash", "-ec", lines_of("SAR-RARP50")[1].replace("suture check", "true")], cwd=tmp_path, check=True)
    write_draft(tmp_path)
    assert all(sorted(video.masks) == [0, 60, 120] for video in load_dataset(tmp_path))
