import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suture.core.errors import UserError
from suture.data.formats import open_export
from suture.data.formats.brush import encode_brush

SIZE = {"original_width": 8, "original_height": 6}


def polygon(label: str = "grasper") -> dict[str, Any]:
    points = [[25, 50], [75, 50], [75, 100], [25, 100]]
    return {**SIZE, "id": "p", "type": "polygonlabels", "value": {"points": points, "polygonlabels": [label]}}


def brush(label: str = "clip") -> dict[str, Any]:
    mask = np.zeros((6, 8), bool)
    mask[0, 0] = mask[5, 2] = True
    return {**SIZE, "id": "b", "type": "brushlabels", "value": {"rle": encode_brush(mask), "brushlabels": [label]}}


def annotation(*result: dict[str, Any], by: Any = 1, **more: Any) -> dict[str, Any]:
    return {"result": list(result), "completed_by": by, **more}


def write(folder: Path, *tasks: list[dict[str, Any]], data: dict[str, Any] | None = None) -> Path:
    path = folder / "export.json"
    value = [{"data": data or {"image": f"/x/{n}.png"}, "annotations": task} for n, task in enumerate(tasks)]
    path.write_text(json.dumps(value))
    return path


def test_polygons_in_percent_and_brushed_masks_are_drawn_in_their_order(tmp_path: Path) -> None:
    ids = open_export(write(tmp_path, [annotation(polygon(), brush())])).mask("/x/0", {"grasper": 1, "clip": 2}, None)
    expected = np.full((6, 8), -1)
    expected[3:6, 2:6] = 1
    expected[0, 0] = expected[5, 2] = 2
    assert (ids.read(False) == expected).all()


def test_several_annotators_need_a_choice(tmp_path: Path) -> None:
    path = write(tmp_path, [annotation(polygon(), by={"id": 7, "email": "a@b.c"}), annotation(brush(), by=8)])
    with pytest.raises(UserError, match=r"first: /x/0 by 8 and a@b\.c"):
        open_export(path)
    assert list(open_export(path, "a@b.c").labels) == list(open_export(path, "7").labels) == ["grasper"]
    assert list(open_export(path, "8").labels) == ["clip"]
    assert open_export(path, "nobody").frames == []


def test_skipped_and_waiting_tasks_are_not_labelled_and_noted(tmp_path: Path) -> None:
    export = open_export(write(tmp_path, [annotation(polygon())], [annotation(was_cancelled=True)], []))
    assert export.frames == ["/x/0"]
    assert ["1 task skipped" in note or "1 task without" in note for note in export.notes] == [True, True]


def test_a_task_submitted_without_regions_shows_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, [annotation()], data={"frame": "a__frame_000001", **SIZE})
    assert (open_export(path).mask("a__frame_000001", {}, None).read(False) == -1).all()


def test_regions_without_a_mask_are_counted(tmp_path: Path) -> None:
    box = {**SIZE, "id": "r", "type": "rectanglelabels", "value": {"x": 0, "rectanglelabels": ["clip"]}}
    (boxes,) = open_export(write(tmp_path, [annotation(polygon(), box)])).boxes
    assert (boxes.boxes, boxes.shapes) == (1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"image": "a.png", "tag": []}], "is not a Label Studio file"),  # JSON-MIN
        ([{"data": {"text": "a"}, "annotations": []}], "names no image"),
        ([{"data": {"frame": "a"}, "annotations": [annotation(polygon())]}] * 2, "two tasks of the frame a"),
        ([{"data": {"frame": "a"}, "annotations": [annotation({**polygon(), "value": {"points": [1]}})]}], None),
        ([{"data": {"frame": "a"}, "annotations": [annotation({**polygon(), "original_width": -1})]}], "impossible"),
    ],
)
def test_files_that_are_wrong_are_named(tmp_path: Path, content: Any, message: str | None) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(content))
    if message is None:
        assert open_export(path).frames == []
        return
    with pytest.raises(UserError, match=rf"export\.json.*{message}"):
        open_export(path)
