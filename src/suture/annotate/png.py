"""Masks as palette PNG with a label map: for any program that edits images, and for imported labels."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from suture.annotate.drafts import Draft, ToolLabels
from suture.core.io import write_text
from suture.data.classes import Color
from suture.data.formats.cvat import LABEL_MAP

CLASS_FOLDER = "SegmentationClass"
README = """1. Open `images`, and the drafts in `masks/SegmentationClass`. `masks/labelmap.txt` lists the colours.
2. Paint with these colours only, without smooth edges. Black means unlabelled. Save as PNG with the same name.
3. Run `suture labels import DATASET masks`.
"""


def write(folder: Path, drafts: Iterable[Draft], labels: ToolLabels) -> None:
    """Write the drafts as masks."""
    write_text(folder / "masks" / LABEL_MAP, label_map(labels))
    for draft in drafts:
        if draft.ids is not None:
            write_mask(folder / "masks", draft.name, draft.ids, labels)


def write_mask(folder: Path, name: str, ids: np.ndarray, labels: ToolLabels) -> None:
    """Write one mask beside a label map."""
    path = folder / CLASS_FOLDER / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_mask(ids, labels.colors))


def encode_mask(ids: np.ndarray, colors: Sequence[Color]) -> bytes:
    """Encode class ids (H, W) as PNG in their colours; ids without one are black."""
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(colors)] = colors
    image = Image.fromarray(ids)
    image.putpalette(palette.tobytes())
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def label_map(labels: ToolLabels) -> str:
    """Content of `labelmap.txt`."""
    lines = [f"{name}:{','.join(map(str, color))}::\n" for name, color in zip(labels.names, labels.colors, strict=True)]
    return "".join(["# label:color_rgb:parts:actions\n", *lines])
