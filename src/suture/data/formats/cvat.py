"""CVAT's "Segmentation mask 1.1": `labelmap.txt`, and `SegmentationClass/*.png` in its colours."""

import io
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from suture.core.errors import UserError
from suture.data.classes import UNPAINTED, Color, Raw, UnknownValues, pack, unpack
from suture.data.formats.archive import Archive
from suture.data.formats.export import Export
from suture.data.images import IMAGE_SUFFIXES, open_image, raw_mask

LABEL_MAP = "labelmap.txt"
_BACKGROUND = "background"
"""CVAT's label for unpainted pixels, which are black: `unpainted` gives them a meaning."""


class CvatExport(Export):
    """One export, as zip or unpacked: `members` are its mask files."""

    @staticmethod
    def read(path: Path, names: list[str]) -> "CvatExport":
        """Read the label map, and list the masks among the files of an export."""
        label_map = min((name for name in names if posixpath.basename(name) == LABEL_MAP), key=len)
        classes = label_map.removesuffix(LABEL_MAP) + "SegmentationClass/"
        members: dict[str, str] = {}
        for name in names:
            stem, suffix = posixpath.splitext(name)
            if name.startswith(classes) and suffix.lower() in IMAGE_SUFFIXES:
                members[stem.removeprefix(classes)] = name
        if not members:
            raise UserError(f"{path} has no masks: expected images in {classes}; export it as Segmentation mask 1.1.")
        return CvatExport(path, _labels(path, label_map), members)

    def mask(self, frame: str, label_ids: Mapping[str, int], annotated: tuple[str, ...] | None) -> "CvatMask":
        return CvatMask(self, self.members[frame], label_ids, annotated)


@dataclass(frozen=True, slots=True)
class CvatMask:
    """A mask of an export."""

    export: CvatExport
    member: str
    label_ids: Mapping[str, int]
    annotated: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return f"{self.export.path}: {self.member}"

    def read(self, by_color: bool) -> np.ndarray:
        """Read the labels as the class table's ids, H W; the colours are CVAT's own, so `by_color` is ignored."""
        with open_image(io.BytesIO(self._bytes()), self.name) as image:
            colors = raw_mask(image, by_color=True, name=self.name)
        values, place, counts = np.unique(pack(colors), return_inverse=True, return_counts=True)
        label_of = {color: label for label, color in self.export.labels.items()}
        # If the background has a colour of its own, black pixels have no label at all.
        label_of.setdefault((0, 0, 0), "" if _BACKGROUND in self.export.labels else _BACKGROUND)
        known = {"": UNPAINTED, _BACKGROUND: UNPAINTED, **self.label_ids}
        ids = np.empty(len(values), np.int32)
        unknown: dict[Raw, int] = {}
        for position, value in enumerate(values.tolist()):
            color = unpack(value)
            label = label_of.get(color)
            if label in known:
                ids[position] = known[label]
            else:
                unknown[label or color] = int(counts[position])
        if unknown:
            raise UnknownValues(unknown, f"the labels of dataset.yaml ({', '.join(self.label_ids)})")
        return ids[place].reshape(colors.shape[:2])

    def examine(self, by_color: bool) -> tuple[np.ndarray, int]:
        return self.read(by_color), 0

    def content(self) -> bytes:
        return repr(sorted(self.export.labels.items())).encode() + self._bytes()

    def _bytes(self) -> bytes:
        return Archive(self.export.path).read(self.member)


def _labels(path: Path, label_map: str) -> dict[str, Color]:
    """Read lines `label:red,green,blue:parts:actions`."""
    labels: dict[str, Color] = {}
    text = Archive(path).read(label_map).decode("utf-8-sig", errors="replace")
    for line, entry in enumerate(text.splitlines(), start=1):
        if not entry.strip() or entry.startswith("#"):
            continue
        try:
            label, color, _, _ = entry.rsplit(":", 3)
            red, green, blue = map(int, color.split(","))
            if (red, green, blue) in labels.values():
                raise ValueError("a colour of two labels")
        except ValueError as error:
            raise UserError(
                f"{path}: {label_map}, line {line} is {entry!r} ({error}): expected label:red,green,blue:parts:actions "
                "with a colour of its own."
            ) from error
        if (label.strip(), red, green, blue) != (_BACKGROUND, 0, 0, 0):
            labels[label.strip()] = (red, green, blue)
    return labels
