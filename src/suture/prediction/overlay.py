"""Masks drawn over frames for people, and the legend that says what the colours mean."""

from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from suture.data.classes import ClassTable

STRENGTH = 0.4
"""The share of a class's colour in its pixels."""
_DARK, _LIGHT = (24, 24, 24), (235, 235, 235)
_SMALLEST = (96, 64)
"""Frames narrower or lower than this have no legend: it could not be read."""


class Overlay:
    """Draws masks over the frames of one size: classes tinted and outlined in their colours, the legend below.

    Classes whose colour is black, and pixels that are ignored, are left as they are: black would only hide the scene.
    """

    def __init__(self, classes: ClassTable, width: int, height: int) -> None:
        self.palette = classes.palette
        self.shown = (self.palette.max(axis=1) > 0).astype(np.uint8)
        self.around = 2 * max(1, round(min(width, height) / 400)) + 1
        """The side of the neighbourhood that makes an outline if it holds two classes."""
        large = width >= _SMALLEST[0] and height >= _SMALLEST[1]
        self.legend = draw_legend(classes, width, height) if large else None

    def __call__(self, frame: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """RGB, uint8: the frame at its own resolution, and the legend below it."""
        shown = cv2.LUT(mask, self.shown)
        painted = cv2.applyColorMap(mask, self.palette[:, None])
        tinted = cv2.addWeighted(frame, 1 - STRENGTH, painted, STRENGTH, 0)
        kernel = np.ones((self.around, self.around), np.uint8)
        # Outside the view there is no outline.
        outline = cv2.compare(cv2.dilate(mask, kernel), cv2.erode(mask, kernel), cv2.CMP_NE)
        cv2.copyTo(painted, outline, tinted)
        drawn = frame.copy()
        cv2.copyTo(tinted, shown, drawn)
        return drawn if self.legend is None else np.concatenate([drawn, self.legend])


def draw_legend(classes: ClassTable, width: int, height: int) -> np.ndarray:
    """A strip for frames of this size: a patch of colour and a name for each class, in as many rows as they need.

    Together they have a height that a video takes without a copy.
    """
    size = int(np.clip(width / 45, 9, 28))
    font = _font(size)
    gap, row = size, round(1.7 * size)
    places = []
    x, y = gap // 2, 0
    for name, color in zip(classes.names, classes.colors, strict=True):
        needed = round(1.4 * size + font.getlength(name))
        if x > gap // 2 and x + needed > width - gap // 2:
            x, y = gap // 2, y + row
        places.append((x, y, name, color))
        x += needed + gap
    least = y + row + size // 4
    strip = Image.new("RGB", (width, least + -(height + least) % 4), _DARK)
    draw = ImageDraw.Draw(strip)
    for x, y, name, color in places:
        middle = y + (row + size // 4) // 2
        draw.rectangle((x, middle - size // 2, x + size, middle + size // 2), color, _LIGHT)
        draw.text((x + round(1.4 * size), middle), name, _LIGHT, font, anchor="lm")
    return np.asarray(strip)


@lru_cache(maxsize=4)
def _font(size: int) -> ImageFont.FreeTypeFont:
    """A font that matplotlib brings: names of classes are in any language."""
    import matplotlib  # on first use: it takes a third of the time in which a process starts to write

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), size)
