import json
from pathlib import Path
from typing import Any

import pytest

from suture.core.errors import UserError
from suture.data.formats import open_export


def write(folder: Path, *annotations: Any, **item: Any) -> Path:
    path = folder / "annotations/default.json"
    path.parent.mkdir()
    items = [{"id": "a.b", "annotations": list(annotations), "image": {"size": [2, 3]}, **item}]
    labels = {"label": {"labels": [{"name": "grasper"}, {"name": "clip"}]}}
    path.write_text(json.dumps({"info": {}, "categories": labels, "items": items}))
    return path


MASK = {"type": "mask", "label_id": 1, "z_order": 1, "rle": {"size": [2, 3], "counts": [1, 2, 3]}}
POLYGON = {"type": "polygon", "label_id": 0, "points": [0, 0, 3, 0, 3, 2, 0, 2]}
BOX = {"type": "bbox", "label_id": 0, "bbox": [0, 0, 1, 1]}


@pytest.mark.parametrize("image", [{"size": [2, 3]}, None])
def test_masks_and_polygons_are_drawn_by_z_order(tmp_path: Path, image: Any) -> None:
    export = open_export(write(tmp_path, MASK, POLYGON, BOX, image=image))
    ids = export.mask("a.b", {"grasper": 1, "clip": 2}, None).read(False)
    assert ids.tolist() == [[1, 2, 1], [2, 1, 1]]
    assert export.boxes[0].boxes == 1


@pytest.mark.parametrize("wrong", [{**MASK, "label_id": 5}, {"type": "mask", "label_id": 0}])
def test_files_that_are_wrong_are_named(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(UserError, match=r"default\.json: a\.b cannot be read"):
        open_export(write(tmp_path, wrong))
