"""Side-by-side video: a stretch of one video with the predictions of every run, as a small MP4 in the page."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np
from PIL import Image, ImageDraw

from suture.data.classes import ClassTable
from suture.data.dataset import Video
from suture.data.overlay import draw_legend, load_font
from suture.reports.gallery import paint_view, view_photo
from suture.reports.report_context import ReportContext

MIN_FRAMES, MAX_FRAMES = 4, 120
"""Length of the video in frames."""
PANEL_SIDE = 320
"""Longer side (pixels) of a panel."""
MAX_COLUMNS = 4
"""Panels beside each other; further panels go below."""
MIN_FPS, MAX_FPS = 2.0, 25.0
STILLS_FPS = 5.0
"""Frame rate if the video has none, or if frames are left out between."""
MIN_SECONDS = 4.0
"""Duration of a video of few frames, which is played more slowly."""
GAP, LINE_HEIGHT, FONT_SIZE = 8, 26, 14
CONTROLS_HEIGHT = 50
"""Space (pixels) at the bottom that a player's controls cover."""
_PAPER, _INK = (24, 24, 24), (236, 238, 240)


@dataclass(frozen=True)
class SideBySide:
    """The encoded video and its description."""

    content: bytes
    poster: np.ndarray
    """First picture, shown until the video plays."""
    caption: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        height, width = self.poster.shape[:2]
        return width, height


def side_by_side_video(context: ReportContext) -> SideBySide | None:
    """Show frame, truth and every finished run on the first new video with masks, or else on one without."""
    candidates = [*context.judged_videos, *context.footage]
    video = next((video for video in candidates if len(_indices(video)) >= MIN_FRAMES), None)
    if video is None or not context.models:
        return None
    indices = _indices(video)
    judge = context.judge if video in context.judged_videos else None
    titles = ["frame", *(["truth"] if judge else []), *(model.run.title for model in context.models.values())]
    pages = []
    sheet: Sheet | None = None
    with context.progress("side by side", len(indices)) as progress:
        predictions = [model.masks({video.id: video}, {video.id: indices}) for model in context.models.values()]
        for results in zip(*predictions, strict=True):
            key = results[0][0]
            photo = view_photo(video, key[1], PANEL_SIDE, enlarge=True)
            masks = [*([judge.truth(key)] if judge else []), *(ids for _, ids in results)]
            panels = [photo, *(paint_view(photo, ids, video, context.class_table.palette) for ids in masks)]
            sheet = sheet or Sheet(titles, photo.shape[:2], context.class_table)
            pages.append(sheet.page(panels, f"{video.id}, frame {key[1]}"))
            progress(1)
    caption = f"{video.id}, frames {indices[0]} to {indices[-1]}: {', '.join(titles)}"
    return SideBySide(encode(pages, _fps(video, indices)), pages[0], caption)


class Sheet:
    """Arrangement of panels on a picture: caption, legend, titles and panels, from top to bottom.

    Args:
        titles: Titles of the panels.
        size: Height and width of a panel.
        classes: Classes of the legend.
    """

    def __init__(self, titles: Sequence[str], size: tuple[int, int], classes: ClassTable) -> None:
        self.height, self.width = size
        rows = math.ceil(len(titles) / MAX_COLUMNS)
        self.columns = math.ceil(len(titles) / rows)
        width = self.columns * (self.width + GAP) + GAP
        width += width % 2  # encoders need even sides
        height = LINE_HEIGHT + rows * (self.height + LINE_HEIGHT) + CONTROLS_HEIGHT
        legend = draw_legend(classes, width, height, FONT_SIZE)
        self.top = LINE_HEIGHT + len(legend)
        self._blank = np.full((height + len(legend), width, 3), _PAPER, np.uint8)
        self._blank[LINE_HEIGHT : self.top] = legend
        for number, title in enumerate(titles):
            x, y = self._corner(number)
            self._blank[y - LINE_HEIGHT : y, x : x + self.width] = draw_text(title, self.width)

    def page(self, panels: Sequence[np.ndarray], caption: str) -> np.ndarray:
        """Return one picture of all panels."""
        page = self._blank.copy()
        for number, panel in enumerate(panels):
            x, y = self._corner(number)
            page[y : y + self.height, x : x + self.width] = panel
        page[:LINE_HEIGHT, GAP:] = draw_text(caption, page.shape[1] - GAP)
        return page

    def _corner(self, number: int) -> tuple[int, int]:
        row, column = divmod(number, self.columns)
        return GAP + column * (self.width + GAP), self.top + LINE_HEIGHT + row * (self.height + LINE_HEIGHT)


def draw_text(text: str, width: int) -> np.ndarray:
    """Draw a line of text, cut off at the width."""
    image = Image.new("RGB", (width, LINE_HEIGHT), _PAPER)
    ImageDraw.Draw(image).text((0, LINE_HEIGHT / 2), text, fill=_INK, font=load_font(FONT_SIZE), anchor="lm")
    return np.asarray(image)


def encode(pictures: Sequence[np.ndarray], fps: float) -> bytes:
    """Encode pictures as H.264 in MP4, which every browser plays."""
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


def _indices(video: Video) -> list[int]:
    """Choose the first frames with masks, or of all frames if there are none."""
    return (video.with_mask or video.usable)[:MAX_FRAMES]


def _fps(video: Video, indices: Sequence[int]) -> float:
    is_whole = indices[-1] - indices[0] + 1 == len(indices)
    fps = video.file.fps if video.file is not None and is_whole else STILLS_FPS
    return min(max(fps, MIN_FPS), MAX_FPS, len(indices) / MIN_SECONDS)
