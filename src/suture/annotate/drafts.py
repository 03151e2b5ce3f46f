"""Drafts for labelling tools: frames to label, each with a predicted mask where there is a model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from suture.data.classes import IGNORE, ClassTable, Color, distinct_colors


@dataclass(frozen=True)
class Draft:
    """A frame to label."""

    name: str
    width: int
    height: int
    ids: np.ndarray | None = None
    """Class ids (H, W), `IGNORE` where nothing is known; None without a model."""
    score: float = 0.0
    """Uncertainty of the model, from 0 to 1."""

    def whole(self, inside: np.ndarray, left: int, top: int) -> np.ndarray:
        """Place a part in an empty mask of the frame's size."""
        mask = np.zeros((self.height, self.width), bool)
        mask[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
        return mask


@dataclass(frozen=True)
class ToolLabels:
    """Classes as labels of a tool: each has a colour of its own, and none is black, which means unlabelled."""

    names: Sequence[str]
    colors: Sequence[Color]
    unpainted: int | None = None
    """Class of pixels without a label: it needs no shape."""

    @classmethod
    def of(cls, names: Sequence[str], wanted: Mapping[str, Color], unpainted: int | None = None) -> "ToolLabels":
        """Use the wanted colours, as far as they differ."""
        colors: dict[str, Color] = {}
        for name in names:
            color = wanted.get(name, (0, 0, 0))
            if color not in [(0, 0, 0), *colors.values()]:
                colors[name] = color
        missing = [name for name in names if name not in colors]
        colors |= zip(missing, distinct_colors(len(missing), list(colors.values())), strict=True)
        return cls(names, [colors[name] for name in names], unpainted)

    @classmethod
    def of_table(cls, classes: ClassTable) -> "ToolLabels":
        """Make the labels of a class table."""
        unpainted = None if classes.unpainted == IGNORE else classes.unpainted
        return cls.of(classes.names, dict(zip(classes.names, classes.colors, strict=True)), unpainted)

    @property
    def hex(self) -> list[tuple[str, str]]:
        """Names and colours such as `#e69f00`."""
        return [
            (name, "#{:02x}{:02x}{:02x}".format(*color)) for name, color in zip(self.names, self.colors, strict=True)
        ]

    def parts(self, ids: np.ndarray) -> Iterator[tuple[int, np.ndarray, int, int]]:
        """Yield the connected parts of each class: class id, mask (h, w) with its holes, left and top.

        Ignored pixels belong to none. The class of unpainted pixels is left out, unless there is no other: a frame
        without any shape would count as not labelled.
        """
        present = [value for value in np.unique(ids).tolist() if value < len(self.names)]
        for value in [value for value in present if value != self.unpainted] or present:
            inside = (ids == value).astype(np.uint8)
            _, marks, boxes, _ = cv2.connectedComponentsWithStats(inside, connectivity=8)
            for part, (left, top, width, height, _) in enumerate(boxes.tolist()[1:], start=1):
                yield value, marks[top : top + height, left : left + width] == part, left, top
