"""Clips: ten seconds of new videos with the predictions of every run, as small MP4 files in the page."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import av
import cv2
import numpy as np
from PIL import Image, ImageDraw

from suture.data.classes import ClassTable
from suture.data.dataset import Video
from suture.data.overlay import draw_legend, load_font
from suture.reports.gallery import paint_view, view_photo
from suture.reports.report_context import ReportContext

MAX_CLIPS = 4
SECONDS = 10
MIN_FRAMES = 4
MAX_FPS = 25.0
STILLS_FPS = 5.0
"""Frame rate of a video that has none, such as a folder of images."""
PANEL_SIDE = 400
"""Longer side (pixels) of a panel."""
MAX_COLUMNS = 5
"""Panels beside each other; further panels go below."""
GAP, LINE_HEIGHT, FONT_SIZE = 8, 22, 13
_PAPER, _INK = (24, 24, 24), (236, 238, 240)


@dataclass(frozen=True)
class Clip:
    """Part of a video with masks over it, as an MP4 file."""

    video: str
    caption: str
    content: bytes


def clips_section(context: ReportContext) -> list[Clip]:
    """Show the frames, the truth and every finished run on the middle of new videos."""
    videos = [video for video in (*context.judged_videos, *context.footage) if len(video.usable) >= MIN_FRAMES]
    return [_clip(context, video) for video in videos[:MAX_CLIPS]] if context.models else []


def _clip(context: ReportContext, video: Video) -> Clip:
    fps = video.file.fps if video.file else STILLS_FPS
    every = math.ceil(fps / MAX_FPS)
    count = round(SECONDS * fps)
    start = max(0, (len(video.usable) - count) // 2)
    indices = video.usable[start : start + count : every]
    judge = context.judge if {*indices} <= {*video.with_mask} else None
    table, pages = context.class_table, []
    with context.progress(f"clip of {video.id}", len(indices)) as progress:
        predictions = [model.masks({video.id: video}, {video.id: indices}) for model in context.models.values()]
        for results in zip(*predictions, strict=True):
            key = results[0][0]
            masks = {"truth": judge.truth(key)} if judge else {}
            masks |= {model.run.title: ids for model, (_, ids) in zip(context.models.values(), results, strict=True)}
            photo = view_photo(video, key[1], PANEL_SIDE)
            panels = {title: paint_view(photo, ids, video, table.palette) for title, ids in masks.items()}
            pages.append(compose({"frame": photo} | panels, table))
            progress(1)
    caption = f"{video.id}, frames {indices[0]} to {indices[-1]}: {', '.join(['frame', *masks])}"
    return Clip(video.id, caption, encode(pages, fps / every))


def compose(panels: Mapping[str, np.ndarray], classes: ClassTable) -> np.ndarray:
    """Arrange panels of one size below their titles, with the legend at the bottom."""
    cells = [np.concatenate([draw_text(title, panel.shape[1]), panel]) for title, panel in panels.items()]
    columns = math.ceil(len(cells) / math.ceil(len(cells) / MAX_COLUMNS))
    cells += [np.full_like(cells[0], _PAPER)] * (-len(cells) % columns)
    framed = [cv2.copyMakeBorder(cell, 0, GAP, 0, GAP, cv2.BORDER_CONSTANT, value=_PAPER) for cell in cells]
    rows = [np.concatenate(framed[start : start + columns], axis=1) for start in range(0, len(cells), columns)]
    page = np.concatenate(rows)
    page = page[:, : page.shape[1] // 2 * 2]  # encoders need even sides
    height, width = page.shape[:2]
    return np.concatenate([page, draw_legend(classes, width, height, FONT_SIZE)])


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
        stream.options = {"crf": "26", "preset": "fast"}
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()
