"""Drafts written for each tool come back pixel for pixel."""

import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from suture.annotate.drafts import Draft, ToolLabels
from suture.annotate.tools import TOOLS
from suture.data.classes import IGNORE, UNPAINTED
from suture.data.formats import open_export
from suture.data.formats.brush import decode_brush, encode_brush


def accepted(folder: Path) -> Path:
    """Label Studio's export after each prediction was accepted as it is."""
    tasks = json.loads((folder / "tasks.json").read_text())
    for task in tasks:
        task["annotations"] = [{"completed_by": 1, "result": one["result"]} for one in task.pop("predictions")]
    path = folder / "export.json"
    path.write_text(json.dumps(tasks))
    return path


EXPORTS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "cvat": ("cvat", lambda folder: folder / "annotations.xml"),
    "cvat masks": ("cvat", lambda folder: folder / "masks.zip"),
    "labelstudio": ("labelstudio", accepted),
    "coco": ("coco", lambda folder: folder / "annotations.json"),
    "png": ("png", lambda folder: folder / "masks"),
}
"""Tool, and the file that comes back from it unchanged."""


def labels_of(count: int, unpainted: int | None = None) -> ToolLabels:
    names = ["background", *(f"class {number}: ä&<" for number in range(1, count))]
    return ToolLabels.of(names, {"background": (0, 0, 0), names[-1]: (9, 9, 9)}, unpainted)


def round_trip(kind: str, ids: np.ndarray, labels: ToolLabels) -> np.ndarray:
    """Class ids after the way through a tool, `IGNORE` without a label."""
    tool, exported = EXPORTS[kind]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        height, width = ids.shape
        TOOLS[tool].write(folder, [Draft("a__frame_000001", width, height, ids, 0.25)], labels)
        export = open_export(exported(folder))
        if "a__frame_000001" not in export.frames:
            return np.full(ids.shape, IGNORE, np.uint8)
        numbers = {label: number for number, label in enumerate(labels.names)}
        back = export.mask("a__frame_000001", numbers, None).read(by_color=False)
    return np.where(back == UNPAINTED, IGNORE, back).astype(np.uint8)


RING = np.ones((5, 7), np.uint8)
RING[2, 2:5] = 0
"""A class around a hole of another one."""


@pytest.mark.parametrize("kind", EXPORTS)
@given(
    hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.sampled_from([0, 1, 2, 255]))
)
@example(RING)
@example(np.full((1, 1), IGNORE, np.uint8))
@example(np.zeros((3, 90), np.uint8))
@settings(max_examples=25)
def test_drafts_come_back_unchanged(kind: str, ids: np.ndarray) -> None:
    assert (round_trip(kind, ids, labels_of(3)) == ids).all()


@pytest.mark.parametrize("kind", EXPORTS)
def test_255_classes_come_back_unchanged(kind: str) -> None:
    ids = np.random.default_rng(0).permutation(256).astype(np.uint8).reshape(16, 16).repeat(2, 0)[:31]
    assert (round_trip(kind, ids, labels_of(255)) == ids).all()


@pytest.mark.parametrize("kind", EXPORTS)
@pytest.mark.parametrize("ids", [RING, np.zeros((4, 6), np.uint8)])
def test_the_class_of_unpainted_pixels_comes_back_as_unpainted_or_itself(kind: str, ids: np.ndarray) -> None:
    """Also in a frame with nothing else, which is labelled nevertheless."""
    back = round_trip(kind, ids, labels_of(3, unpainted=0))
    assert (np.where(back == IGNORE, 0, back) == ids).all()
    assert (back != IGNORE).any()


def test_each_connected_part_is_an_object_and_ignored_pixels_are_none(tmp_path: Path) -> None:
    ids = np.array([[1, 255, 1], [255, 0, 255], [2, 2, 1]], np.uint8)  # diagonal neighbours are connected
    draft = Draft("a", 3, 3, ids)
    TOOLS["coco"].write(tmp_path, [draft], labels_of(3))
    annotations = json.loads((tmp_path / "annotations.json").read_text())["annotations"]
    assert [(one["category_id"], one["area"]) for one in annotations] == [(1, 1), (2, 1), (2, 1), (2, 1), (3, 2)]


@given(hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)))
@example(np.ones((300, 301), bool))
def test_brush_code_keeps_every_mask(mask: np.ndarray) -> None:
    assert (decode_brush(encode_brush(mask), *mask.shape) == mask).all()


@pytest.mark.parametrize("code", [[], [0, 0, 0, 4], encode_brush(np.ones((4, 4), bool))])
def test_brush_code_of_another_image_is_rejected(code: list[int]) -> None:
    with pytest.raises(ValueError):
        decode_brush(code, 3, 3)


@pytest.fixture(scope="module")
def cvat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cvat")
    TOOLS["cvat"].write(folder, [Draft("a", 7, 5, RING, 0.5), Draft("b", 7, 5)], labels_of(3))
    return folder


def test_cvat_declares_the_background_with_a_colour_of_its_own(cvat: Path) -> None:
    labels = json.loads((cvat / "labels.json").read_text())
    assert labels[0]["name"] == "background"
    assert len({label["color"] for label in labels} | {"#000000"}) == 4


def test_cvat_masks_have_an_explicit_order_and_frames_without_a_draft_are_listed(cvat: Path) -> None:
    xml = (cvat / "annotations.xml").read_text()
    assert [xml.count(part) for part in ("<image ", "<mask ", 'z_order="0"', 'z_order="1"')] == [2, 2, 1, 1]
    with zipfile.ZipFile(cvat / "masks.zip") as archive:
        assert archive.read("ImageSets/Segmentation/default.txt") == b"a\n"


def test_label_studio_tasks_carry_frame_and_uncertainty(tmp_path: Path) -> None:
    TOOLS["labelstudio"].write(tmp_path, [Draft("a b__frame_000001", 7, 5, RING, 0.5)], labels_of(3))
    (task,) = json.loads((tmp_path / "tasks.json").read_text())
    assert task["data"]["frame"] == "a b__frame_000001"
    assert task["data"]["image"].endswith("images/a%20b__frame_000001.png")
    assert task["predictions"][0]["score"] == 0.5
