"""The view: the part of a frame that shows the scene. Black border, menus and overlays lie outside."""

from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np

from suture.core.errors import UserError

_SHOWN = 0.01
"""A circle that shows less of its rectangle is a mistake."""


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
        """Read `[x, y, w, h]` or `{rect: [x, y, w, h], circle: [cx, cy, r]}` as they stand in `dataset.yaml`."""
        parts: dict[str, Any] = value if isinstance(value, dict) else {"rect": value}
        rect, circle = parts.get("rect"), parts.get("circle")
        if set(parts) - {"rect", "circle"} or not _numbers(rect, 4) or not (circle is None or _numbers(circle, 3)):
            expected = "auto, none, [x, y, w, h] or {rect: [x, y, w, h], circle: [cx, cy, r]}"
            raise UserError(f"{where}: the view is {value!r}, expected {expected}.")
        assert rect is not None
        x, y, width, height = (int(number) for number in rect)
        if x < 0 or y < 0 or width < 1 or height < 1:
            raise UserError(f"{where}: the view {list(rect)!r} is empty or begins outside the frame.")
        if circle is None:
            return View(x, y, width, height)
        cx, cy, radius = map(float, circle)
        view = View(x, y, width, height, (cx, cy, radius))
        view._refuse_hidden(where)
        return view

    def to_json(self) -> dict[str, Any]:
        """The same form that `parse` reads."""
        rect: dict[str, Any] = {"rect": [self.x, self.y, self.width, self.height]}
        return rect | ({"circle": list(self.circle)} if self.circle else {})

    def __str__(self) -> str:
        """The rectangle, as options have it."""
        return f"{self.x},{self.y},{self.width},{self.height}"

    def is_within(self, width: int, height: int) -> bool:
        """Whether frames of this size show all of its rectangle."""
        return self.x + self.width <= width and self.y + self.height <= height

    def within(self, width: int, height: int, where: str = "view") -> "View":
        """The same view cut to a frame's size; messages name where it was said."""
        frames = f"frames of {width}×{height} pixels"
        if not (0 <= self.x < width and 0 <= self.y < height):
            raise UserError(
                f"{where}: the view {self.to_json()['rect']} lies outside its {frames}, expected x, y, width and "
                "height in pixels of the frame."
            )
        cut = replace(self, width=min(self.width, width - self.x), height=min(self.height, height - self.y))
        cut._refuse_hidden(where, f", cut to its {frames}")
        return cut

    def _refuse_hidden(self, where: str, cut: str = "") -> None:
        """A circle that lies beside the rectangle, or is a speck in it."""
        if self.circle is None:
            return
        cx, cy, radius = self.circle
        grid = (np.arange(100) + 0.5) / 100  # not every pixel: a rectangle may be said to be larger than memory
        across, down = self.x + self.width * grid - cx, self.y + self.height * grid[:, None] - cy
        if (across**2 + down**2 <= radius**2).mean() < _SHOWN:
            circle = ", ".join(f"{number:g}" for number in self.circle)
            raise UserError(
                f"{where}: the circle [{circle}] shows next to nothing of the view {self.to_json()['rect']}{cut}, "
                "expected centre x, centre y and radius in pixels of the frame."
            )

    def mask(self, width: int, height: int) -> np.ndarray:
        """True where a pixel of a width × height frame lies inside the view."""
        inside = np.zeros((height, width), bool)
        inside[self.y : self.y + self.height, self.x : self.x + self.width] = True
        if self.circle:
            cx, cy, radius = self.circle
            rows, columns = np.ogrid[:height, :width]
            inside &= (columns + 0.5 - cx) ** 2 + (rows + 0.5 - cy) ** 2 <= radius**2
        return inside

    def crop(self, image: np.ndarray) -> np.ndarray:
        """The rectangle cut out of an image or mask (a view of the array, not a copy)."""
        return image[self.y : self.y + self.height, self.x : self.x + self.width]


def paint_view(frame: np.ndarray, view: View) -> np.ndarray:
    """The frame with everything outside the view dimmed and the view's outline in green, for a person to judge."""
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
