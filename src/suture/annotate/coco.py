"""COCO: drafts as run lengths, one annotation for each connected part."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from suture.annotate.drafts import Draft, ToolLabels
from suture.core.io import write_json
from suture.data.formats.shapes import run_lengths

README = """1. Import `annotations.json` and `images` into your tool as COCO instances.
2. Correct the drafts. `score` is the model's uncertainty.
3. Export as COCO with polygons or run lengths, and run `suture labels import DATASET EXPORT.json`.
"""


def write(folder: Path, drafts: Iterable[Draft], labels: ToolLabels) -> None:
    """Write `annotations.json`."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, draft in enumerate(drafts, start=1):
        images.append({"id": number, "file_name": f"{draft.name}.png", "width": draft.width, "height": draft.height})
        for label_id, inside, left, top in labels.parts(draft.ids) if draft.ids is not None else ():
            rows, columns = inside.shape
            annotation = {"id": len(annotations) + 1, "image_id": number, "category_id": label_id + 1, "iscrowd": 1}
            runs = {
                "size": [draft.height, draft.width],
                "counts": run_lengths(draft.whole(inside, left, top).T.ravel()),
            }
            shape = {"segmentation": runs, "area": int(inside.sum()), "bbox": [left, top, columns, rows]}
            annotations.append({**annotation, **shape, "score": draft.score})
    categories = [{"id": number, "name": name} for number, name in enumerate(labels.names, start=1)]
    write_json(folder / "annotations.json", {"images": images, "categories": categories, "annotations": annotations})
