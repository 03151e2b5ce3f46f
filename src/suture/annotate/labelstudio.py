"""Label Studio: labelling interface, and tasks with drafts as predictions."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from suture.annotate.drafts import Draft, ToolLabels
from suture.core.io import write_json, write_text
from suture.data.formats.brush import encode_brush
from suture.data.formats.labelstudio import FRAME

README = """1. Start Label Studio with `LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true` and
   `LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT` set to this folder. Create a project, and paste `label_config.xml` under
   Labeling Setup > Custom template. Add this folder's `images` under Cloud Storage > Local files, without a sync.
2. Import `tasks.json`. Each task shows its draft as a prediction; `score` is the model's uncertainty.
3. Correct and submit. Export as JSON and run `suture labels import DATASET EXPORT.json`.
"""


def write(folder: Path, drafts: Iterable[Draft], labels: ToolLabels) -> None:
    """Write `label_config.xml` and `tasks.json`."""
    write_text(folder / "label_config.xml", label_config(labels))
    write_json(folder / "tasks.json", [_task(draft, labels) for draft in drafts])


def label_config(labels: ToolLabels) -> str:
    """Labelling interface with a brush and polygons."""
    view = ET.Element("View")
    ET.SubElement(view, "Image", name="image", value="$image", zoom="true")
    for kind in ("Brush", "Polygon"):
        control = ET.SubElement(view, f"{kind}Labels", name=kind.lower(), toName="image")
        for name, color in labels.hex:
            ET.SubElement(control, "Label", value=name, background=color)
    ET.indent(view)
    return ET.tostring(view, "unicode")


def _task(draft: Draft, labels: ToolLabels) -> dict[str, Any]:
    image = f"/data/local-files/?d=images/{quote(draft.name)}.png"
    size = {"original_width": draft.width, "original_height": draft.height}
    task: dict[str, Any] = {"data": {"image": image, FRAME: draft.name, **size}, "predictions": []}
    if draft.ids is not None:
        task["predictions"].append(prediction(draft, labels))
    return task


def prediction(draft: Draft, labels: ToolLabels) -> dict[str, Any]:
    """Prediction of one task: a brushed region for each connected part."""
    assert draft.ids is not None
    regions = []
    for number, (label_id, inside, left, top) in enumerate(labels.parts(draft.ids)):
        brush = encode_brush(draft.whole(inside, left, top))
        value = {"format": "rle", "rle": brush, "brushlabels": [labels.names[label_id]]}
        size = {"original_width": draft.width, "original_height": draft.height, "image_rotation": 0}
        control = {"from_name": "brush", "to_name": "image", "type": "brushlabels"}
        regions.append({"id": f"part{number}", **control, **size, "value": value, "score": draft.score})
    return {"model_version": "suture", "score": draft.score, "result": regions}
