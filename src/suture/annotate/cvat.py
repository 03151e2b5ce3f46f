"""CVAT: labels, and drafts as "CVAT for images 1.1" and as "Segmentation mask 1.1"."""

import json
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from suture.annotate.drafts import Draft, ToolLabels
from suture.annotate.png import CLASS_FOLDER, encode_mask, label_map
from suture.core.io import write_bytes, write_text
from suture.data.classes import Color
from suture.data.formats.cvat import LABEL_MAP
from suture.data.formats.shapes import run_lengths

MAX_OBJECTS = 255
"""Objects in one frame that "Segmentation mask 1.1" can tell apart."""
README = """1. In CVAT, create a task: paste `labels.json` under Labels > Raw, and upload the files of `images`.
2. Upload the drafts: Actions > Upload annotations > CVAT 1.1, file `annotations.xml`.
   CVAT without masks in XML: Segmentation mask 1.1, file `masks.zip`.
3. Correct the drafts. Export the task as "CVAT for images 1.1" and run `suture labels import DATASET EXPORT.zip`.
"""


def write(folder: Path, drafts: Iterable[Draft], labels: ToolLabels) -> None:
    """Write labels and drafts; each connected part is an object, and later classes lie above earlier ones."""
    config = [{"name": name, "color": color, "type": "any", "attributes": []} for name, color in labels.hex]
    write_text(folder / "labels.json", json.dumps(config, indent=1, ensure_ascii=False))
    root = ET.Element("annotations")
    ET.SubElement(root, "version").text = "1.1"
    declared = ET.SubElement(ET.SubElement(ET.SubElement(root, "meta"), "task"), "labels")
    for name, color in labels.hex:
        label = ET.SubElement(declared, "label")
        ET.SubElement(label, "name").text = name
        ET.SubElement(label, "color").text = color
    names = []
    with zipfile.ZipFile(folder / "masks.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(LABEL_MAP, label_map(labels))
        for number, draft in enumerate(drafts):
            size = {"width": str(draft.width), "height": str(draft.height)}
            image = ET.SubElement(root, "image", {"id": str(number), "name": f"{draft.name}.png", **size})
            if draft.ids is None:
                continue
            objects = np.zeros(draft.ids.shape, np.uint8)
            for count, (label_id, inside, left, top) in enumerate(labels.parts(draft.ids), start=1):
                rows, columns = inside.shape
                place = {"left": left, "top": top, "width": columns, "height": rows, "z_order": label_id}
                values = {name: str(value) for name, value in place.items()}
                runs = ", ".join(map(str, run_lengths(inside.ravel())))
                values |= {"label": labels.names[label_id], "rle": runs, "source": "auto", "occluded": "0"}
                ET.SubElement(image, "mask", values)
                if count <= MAX_OBJECTS:
                    objects[top : top + rows, left : left + columns][inside] = count
            archive.writestr(f"{CLASS_FOLDER}/{draft.name}.png", encode_mask(draft.ids, labels.colors))
            archive.writestr(f"SegmentationObject/{draft.name}.png", encode_mask(objects, _object_colors()))
            names.append(draft.name)
        archive.writestr("ImageSets/Segmentation/default.txt", "".join(f"{name}\n" for name in names))
    write_bytes(folder / "annotations.xml", ET.tostring(root, "utf-8", xml_declaration=True))


def _object_colors() -> list[Color]:
    """Colours of Pascal VOC's object numbers: their bits, spread over the channels."""
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    channels = [bits[:, channel::3] @ (128 >> np.arange(len(range(channel, 8, 3)))) for channel in range(3)]
    return list(zip(*(channel.tolist() for channel in channels), strict=True))
