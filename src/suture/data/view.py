"""The view: the part of a frame that shows the scene, without black borders and menus."""

from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np

from suture.core.errors import UserError
from suture.core.text import short

MIN_CIRCLE_SHARE = 0.01
"""A circle that covers less of its rectangle is a mistake."""


@dataclass(frozen=True, slots=True)
class View:
    """A rectangle and, within it, optionally a circle (centre x, centre y, radius), in pixels of the frame."""

    x: int
    y: int
    width: int
    height: int
    circle: tuple[float, float, float] | None = None

    @staticmethod
    def parse(value: Any, where: str) -> "View":
        """Read `[x, y, w, h]` or `{rect: [x, y, w, h], circle: [cx, cy, r]}`, as in `dataset.yaml`."""
        parts: dict[str, Any] = value if isinstance(value, dict) else {"rect": value}
        rect, circle = parts.get("rect"), parts.get("circle")
        if set(parts) - {"rect", "circle"} or not _numbers(rect, 4) or not (circle is None or _numbers(circle, 3)):
            expected = "auto, none, [x, y, w, h] or {rect: [x, y, w, h], circle: [cx, cy, r]}"
            raise UserError(f"{where}: the view is {short(value)}, expected {expected}.")
        x, y, width, height = map(int, rect or ())
        view = View(x, y, width, height, circle and (float(circle[0]), float(circle[1]), float(circle[2])))
        if x < 0 or y < 0 or width < 1 or height < 1 or not view._shows_circle():
            raise UserError(f"{where}: the view {view.to_json()} shows nothing of the frame.")
        return view

    def to_json(self) -> dict[str, Any]:
        """Return the form that `parse` reads."""
        rect: dict[str, Any] = {"rect": [self.x, self.y, self.width, self.height]}
        return rect | ({"circle": list(self.circle)} if self.circle else {})

    def __str__(self) -> str:
        """Write the rectangle as a command-line option has it."""
        return f"{self.x},{self.y},{self.width},{self.height}"

    def is_within(self, width: int, height: int) -> bool:
        """Test whether frames of this size hold all of the rectangle."""
        return self.x + self.width <= width and self.y + self.height <= height

    def within(self, width: int, height: int, where: str = "view") -> "View":
        """Cut the view to a frame's size.

        Raises:
            UserError: The frame shows nothing of it; begins with `where`.
        """
        cut = replace(self, width=min(self.width, width - self.x), height=min(self.height, height - self.y))
        if not (0 <= self.x < width and 0 <= self.y < height) or not cut._shows_circle():
            raise UserError(
                f"{where}: the view {self.to_json()} lies outside its frames of {width}×{height} pixels: state it in "
                "pixels of the frame."
            )
        return cut

    def _shows_circle(self) -> bool:
        """Test that a circle is neither beside the rectangle nor a speck in it."""
        if self.circle is None:
            return True
        cx, cy, radius = self.circle
        grid = (np.arange(100) + 0.5) / 100  # not every pixel: a stated rectangle may be larger than memory
        across, down = self.x + self.width * grid - cx, self.y + self.height * grid[:, None] - cy
        return bool((across**2 + down**2 <= radius**2).mean() >= MIN_CIRCLE_SHARE)

    def mask(self, width: int, height: int) -> np.ndarray:
        """Mark the pixels of a width × height frame that lie inside the view, bool."""
        inside = np.zeros((height, width), bool)
        inside[self.y : self.y + self.height, self.x : self.x + self.width] = True
        if self.circle:
            cx, cy, radius = self.circle
            rows, columns = np.ogrid[:height, :width]
            inside &= (columns + 0.5 - cx) ** 2 + (rows + 0.5 - cy) ** 2 <= radius**2
        return inside

    def crop(self, image: np.ndarray) -> np.ndarray:
        """Cut the rectangle out of an image or mask, without a copy."""
        return image[self.y : self.y + self.height, self.x : self.x + self.width]


def outline_view(frame: np.ndarray, view: View) -> np.ndarray:
    """Paint a frame for people to judge its view: the outside dimmed, the outline in green."""
    height, width = frame.shape[:2]
    inside = view.mask(width, height)
    drawn = np.where(inside[..., None], frame, frame // 3 + np.array([80, 0, 60], np.uint8))
    thickness = max(1, round(max(height, width) / 300))
    outline = cv2.morphologyEx(
        np.pad(inside.astype(np.uint8), 1), cv2.MORPH_GRADIENT, np.ones((2 * thickness + 1,) * 2, np.uint8)
    )[1:-1, 1:-1]
    drawn[outline.astype(bool)] = (0, 255, 0)
    return drawn


def _numbers(value: Any, count: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == count and all(isinstance(n, int | float) for n in value)
