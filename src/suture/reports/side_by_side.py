"""A stretch of one video as every run sees it, side by side: a small MP4 that plays in the page."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import cv2
import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from suture.data.dataset import Video
from suture.reports.context import Context
from suture.reports.overlays import scene, small_mask
from suture.training.callbacks import bar

_FRAMES = 120
"""Frames of the stretch at most."""
_FEWEST = 4
"""A video needs some frames to be one."""
_SIDE = 320
"""The longer side of a panel."""
_COLUMNS = 4
"""Panels beside each other; more go below."""
_FPS = (2.0, 25.0)
_STILLS = 5.0
"""Frames per second where the video does not say, or where frames are left out between."""
_SECONDS = 4.0
"""It takes at least so long: a few frames are shown one after the other more slowly."""
_PAPER, _INK, _SOFT = (24, 27, 31), (236, 238, 240), (160, 166, 174)
_GAP, _LINE, _SWATCH = 8, 26, 12
_CONTROLS = 50
"""A player's controls lie over so much of the bottom."""


@dataclass(frozen=True)
class SideBySide:
    """The encoded video, and what it shows."""

    content: bytes
    poster: np.ndarray
    """Its first picture: what is seen until it plays."""
    video: str
    first: int
    last: int
    frames: int
    panels: list[str]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        height, width = self.poster.shape[:2]
        return width, height


def side_by_side_video(context: Context) -> SideBySide | None:
    """Frame, truth and what each finished run says, of the first new video with masks, else of one without."""
    candidates = [*context.judged_videos, *context.footage]
    video = next((video for video in candidates if len(_stretch(video)) >= _FEWEST), None)
    if video is None or not context.models:
        return None
    indices = _stretch(video)
    judge = context.judge if video in context.judged_videos else None
    titles = ["frame", *(["truth"] if judge else []), *(model.run.name for model in context.models.values())]
    pages = []
    sheet: Sheet | None = None
    with bar("side by side", len(indices), context.console) as (progress, task):
        of_runs = [model.masks({video.id: video}, {video.id: indices}) for model in context.models.values()]
        for found in zip(*of_runs, strict=True):
            place = found[0][0]
            photo = _enlarged(scene(video, place[1], _SIDE))
            masks = [*([judge.truth(place)] if judge else []), *(ids for _, ids in found)]
            panels = [photo, *(_painted(photo, ids, video, context.colors) for ids in masks)]
            sheet = sheet or Sheet(titles, photo.shape[:2], context.classes, context.colors)
            pages.append(sheet.page(panels, f"{video.id}, frame {place[1]}"))
            progress.advance(task)
    content = encode(pages, _fps(video, indices))
    return SideBySide(content, pages[0], video.id, indices[0], indices[-1], len(indices), titles)


class Sheet:
    """The panels' places on a picture, the names above them, and the legend: in cells that are left over, or below.

    The caption is at the top, and nothing at the bottom, which a player covers.
    """

    def __init__(
        self, titles: Sequence[str], size: tuple[int, int], classes: Sequence[str], colors: np.ndarray
    ) -> None:
        self.titles = titles
        self.panel_height, self.panel_width = size
        rows = math.ceil(len(titles) / _COLUMNS)
        self.columns = math.ceil(len(titles) / rows)
        # Encoders take even sides only.
        self.width = _even(self.columns * (self.panel_width + _GAP) + _GAP)
        below = _LINE + rows * (self.panel_height + _LINE) + _GAP
        left, top = self._corner(len(titles))
        spare = (rows * self.columns - len(titles)) * (self.panel_width + _GAP) - _GAP
        legend = _legend(classes, colors, spare) if spare >= max(map(_entry, classes)) else None
        self.height = _even(below + _CONTROLS)
        if legend is None or legend.shape[0] > self.panel_height:
            left, top = _GAP, below
            legend = _legend(classes, colors, self.width - 2 * _GAP)
            self.height = _even(below + legend.shape[0] + _CONTROLS)
        self._blank = np.full((self.height, self.width, 3), _PAPER, np.uint8)
        for number, title in enumerate(titles):
            x, y = self._corner(number)
            strip = text(title, self.panel_width, _LINE)
            self._blank[y - _LINE : y, x : x + self.panel_width] = strip
        self._blank[top : top + legend.shape[0], left : left + legend.shape[1]] = legend

    def page(self, panels: Sequence[np.ndarray], caption: str) -> np.ndarray:
        """One picture of all panels."""
        page = self._blank.copy()
        for number, panel in enumerate(panels):
            x, y = self._corner(number)
            page[y : y + self.panel_height, x : x + self.panel_width] = panel
        strip = text(caption, self.width - 2 * _GAP, _LINE, _SOFT)
        page[:_LINE, _GAP : self.width - _GAP] = strip
        return page

    def _corner(self, number: int) -> tuple[int, int]:
        row, column = divmod(number, self.columns)
        return _GAP + column * (self.panel_width + _GAP), 2 * _LINE + row * (self.panel_height + _LINE)


def painted(photo: np.ndarray, ids: np.ndarray, colors: np.ndarray, strength: float = 0.5) -> np.ndarray:
    """A photo with class ids of the same size over it, and their outlines; black classes are left as they are."""
    table = np.zeros((256, 3), np.uint8)
    table[: len(colors)] = colors
    shown = (table.max(axis=1) > 0)[ids]
    mixed = cv2.addWeighted(photo, 1 - strength, table[ids], strength, 0)
    edges = np.zeros(ids.shape, bool)
    edges[:, :-1] |= ids[:, 1:] != ids[:, :-1]
    edges[:-1] |= ids[1:] != ids[:-1]
    edges[:, 1:] |= ~shown[:, :-1]
    edges[1:] |= ~shown[:-1]
    tinted = np.where(edges[..., None], table[ids], mixed)
    return np.where(shown[..., None], tinted, photo).astype(np.uint8)


def encode(pictures: Sequence[np.ndarray], fps: float) -> bytes:
    """Pictures as an H.264 video that every browser plays."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "24", "preset": "fast"}
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def text(said: str, width: int, height: int, color: tuple[int, int, int] = _INK) -> np.ndarray:
    """A line of text on the paper's colour, cut where it is too long."""
    image = Image.new("RGB", (width, height), _PAPER)
    font = _font()
    while said and font.getlength(said) > width:
        said = said[:-2].rstrip("…") + "…" if len(said) > 2 else ""
    ImageDraw.Draw(image).text((0, height / 2), said, fill=color, font=font, anchor="lm")
    return np.asarray(image)


def _legend(classes: Sequence[str], colors: np.ndarray, width: int) -> np.ndarray:
    """Swatches and names in as many lines as they need."""
    places: list[tuple[int, int]] = []
    x = y = 0
    for name in classes:
        wide = _entry(name)
        if x and x + wide > width:
            x, y = 0, y + _LINE
        places.append((x, y))
        x += wide
    image = Image.new("RGB", (width, y + _LINE), _PAPER)
    draw = ImageDraw.Draw(image)
    for name, color, (left, top) in zip(classes, colors.tolist(), places, strict=True):
        middle = top + _LINE // 2
        draw.rectangle((left, middle - _SWATCH // 2, left + _SWATCH, middle + _SWATCH // 2), tuple(color), _SOFT)
        draw.text((left + _SWATCH + 6, middle), name, fill=_INK, font=_font(), anchor="lm")
    return np.asarray(image)


def _entry(name: str) -> int:
    """The width of a class in the legend, and of the space after it."""
    return _SWATCH + 6 + round(_font().getlength(name)) + 18


@lru_cache(maxsize=1)
def _font() -> ImageFont.FreeTypeFont:
    # matplotlib brings a font that knows more than ASCII, wherever this runs.
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf")), 14)


def _enlarged(photo: np.ndarray) -> np.ndarray:
    """A small frame as large as others are: names stand above it."""
    scale = _SIDE / max(photo.shape[:2])
    return cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC) if scale > 1 else photo


def _painted(photo: np.ndarray, ids: np.ndarray | None, video: Video, colors: np.ndarray) -> np.ndarray:
    return photo if ids is None else painted(photo, small_mask(ids, video, photo), colors)


def _stretch(video: Video) -> list[int]:
    """The frames that are shown: those with masks, where there are any."""
    return (video.with_mask or video.usable)[:_FRAMES]


def _fps(video: Video, indices: Sequence[int]) -> float:
    whole = indices[-1] - indices[0] + 1 == len(indices)
    said = video.file.fps if video.file is not None and whole else _STILLS
    return min(max(said, _FPS[0]), _FPS[1], len(indices) / _SECONDS)


def _even(side: int) -> int:
    return side + side % 2
