"""Masks painted over frames, and the legend that names their colours."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from suture.data.classes import ClassTable

OPACITY = 0.4
"""Default share of a class's colour in its pixels."""
MIN_LEGEND_WIDTH, MIN_LEGEND_HEIGHT = 96, 64
"""Smaller frames (pixels) have no legend: it could not be read."""
_DARK, _LIGHT = (24, 24, 24), (235, 235, 235)


def paint_mask(
    frame: np.ndarray, mask: np.ndarray, colors: np.ndarray, *, opacity: float = OPACITY, outline: int = 1
) -> np.ndarray:
    """Tint and outline the classes of a mask in their colours.

    Classes whose colour is black, and ignored pixels, are left as they are.

    Args:
        frame: (H, W, 3) RGB, uint8.
        mask: (H, W) class ids, uint8.
        colors: (N, 3) RGB by class id, such as `ClassTable.palette`.
        opacity: Share of the class's colour, 0 to 1.
        outline: Distance (pixels) on each side of a border between classes that is painted in full colour.

    Returns:
        (H, W, 3) RGB, uint8.

    >>> frame, mask = np.full((1, 4, 3), 100, np.uint8), np.array([[0, 0, 1, 1]], np.uint8)
    >>> paint_mask(frame, mask, np.array([[0, 0, 0], [200, 0, 0]]), opacity=0.5)[0, :, 0].tolist()
    [100, 100, 200, 150]
    """
    palette = np.zeros((256, 1, 3), np.uint8)
    palette[: len(colors), 0] = colors
    painted = cv2.applyColorMap(mask, palette)
    tinted = cv2.addWeighted(frame, 1 - opacity, painted, opacity, 0)
    kernel = np.ones((2 * outline + 1, 2 * outline + 1), np.uint8)
    border = cv2.compare(cv2.dilate(mask, kernel), cv2.erode(mask, kernel), cv2.CMP_NE)
    cv2.copyTo(painted, border, tinted)
    result = frame.copy()
    cv2.copyTo(tinted, cv2.LUT(mask, palette.max(axis=2)), result)
    return result


class OverlayStyle(NamedTuple):
    """Look of an overlay."""

    opacity: float = OPACITY
    """Share of a class's colour in its pixels."""
    outline: int | None = None
    """Pixels on each side of a border that are painted in full colour; None grows with the frame."""
    side_by_side: bool = False
    """Show the frame beside its overlay."""


PLAIN_STYLE = OverlayStyle()


class Overlay:
    """Paints masks over frames of one size, with a legend below.

    Args:
        classes: Names and colours.
        width: Of the frames, in pixels.
        height: Of the frames, in pixels.
        style: Its look.
    """

    def __init__(self, classes: ClassTable, width: int, height: int, style: OverlayStyle = PLAIN_STYLE) -> None:
        self.style = style
        self.palette = classes.palette
        automatic = max(1, round(min(width, height) / 400))
        self.outline = automatic if self.style.outline is None else self.style.outline
        large = width >= MIN_LEGEND_WIDTH and height >= MIN_LEGEND_HEIGHT
        self.legend = draw_legend(classes, width, height) if large else None

    def __call__(self, frame: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the painted frame (RGB, uint8) with the legend below it."""
        painted = paint_mask(frame, mask, self.palette, opacity=self.style.opacity, outline=self.outline)
        overlay = painted if self.legend is None else np.concatenate([painted, self.legend])
        if not self.style.side_by_side:
            return overlay
        below = ((0, len(overlay) - len(frame)), (0, 0), (0, 0))
        return np.hstack([np.pad(frame, below), overlay])


def stamp(picture: np.ndarray, text: str) -> None:
    """Write a line of light text into the upper left corner of a picture, in place.

    Args:
        picture: (H, W) grey or brightness, uint8.
        text: Such as the video's name and the time.
    """
    size = int(np.clip(picture.shape[1] / 60, 9, 24))
    font = load_font(size)
    line = Image.new("L", (min(picture.shape[1], round(font.getlength(text)) + size), round(1.6 * size)), _DARK[0])
    ImageDraw.Draw(line).text((size // 2, line.height // 2), text, _LIGHT[0], font, anchor="lm")
    picture[: line.height, : line.width] = np.asarray(line)[: len(picture)]


def draw_legend(classes: ClassTable, width: int, height: int, font_size: int | None = None) -> np.ndarray:
    """Draw a strip with a patch of colour and a name for each class, in as many rows as needed.

    The strip and a frame of `height` have a total height divisible by 4, which video encoders take without a copy.
    The font's size follows from the width by default.
    """
    size = font_size or int(np.clip(width / 45, 9, 28))
    font = load_font(size)
    gap, row = size, round(1.7 * size)
    places = []
    x, y = gap // 2, 0
    for name, color in zip(classes.names, classes.colors, strict=True):
        needed = round(1.4 * size + font.getlength(name))
        if x > gap // 2 and x + needed > width - gap // 2:
            x, y = gap // 2, y + row
        places.append((x, y, name, color))
        x += needed + gap
    bottom = y + row + size // 4
    strip = Image.new("RGB", (width, bottom + -(height + bottom) % 4), _DARK)
    draw = ImageDraw.Draw(strip)
    for x, y, name, color in places:
        middle = y + (row + size // 4) // 2
        draw.rectangle((x, middle - size // 2, x + size, middle + size // 2), color, _LIGHT)
        draw.text((x + round(1.4 * size), middle), name, _LIGHT, font, anchor="lm")
    return np.asarray(strip)


@lru_cache(maxsize=4)
def load_font(size: int) -> ImageFont.FreeTypeFont:
    """Load the font that matplotlib brings, which has more than ASCII: class names are in any language."""
    import matplotlib  # here, because it is slow to import and every writer process imports this module

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), size)
