"""Gallery: chosen frames with masks over them, for the page's viewer and for figures.

The page holds the photo of each frame once and its masks as run lengths, which the script paints. What lies outside
the view, such as menus or a patient's name, is never included.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import cv2
import numpy as np

from suture.data.classes import IGNORE
from suture.data.dataset import Video
from suture.data.overlay import paint_mask
from suture.reports.frame_choice import EVENLY, GROUPS, FrameKey

PHOTO_SIDE = 640
"""Longer side (pixels) of a photo in the page."""
OPACITY = 0.5
"""Share of a class's colour in figures and the side-by-side video."""


Masks = Mapping[FrameKey, np.ndarray]
"""Class ids of frames at native resolution."""


@dataclass
class Panel:
    """One mask of every picture: the truth, or the prediction of a run."""

    title: str
    kind: str
    """`truth` or `prediction`."""
    masks: Masks
    scores: Mapping[FrameKey, float | None] = field(default_factory=dict)
    """IoU of frames whose truth is known."""


@dataclass
class Gallery:
    """Chosen frames and the panels that are shown of each."""

    videos: Mapping[str, Video]
    chosen: Mapping[FrameKey, Sequence[str]]
    """Reasons for which each frame was chosen."""
    panels: Sequence[Panel]
    notes: Mapping[FrameKey, str] = field(default_factory=dict)
    candidates: int = 0
    """Number of frames among which the worst and best were chosen."""

    @property
    def has_truth(self) -> bool:
        return any(panel.kind == "truth" for panel in self.panels)

    @cached_property
    def classes(self) -> list[int]:
        """Classes that occur in the masks."""
        masks = (panel.masks[key] for panel in self.panels for key in self.chosen if key in panel.masks)
        pixels = np.sum([np.bincount(ids.ravel(), minlength=256) for ids in masks], axis=0, initial=0)
        return [number for number in np.flatnonzero(pixels).tolist() if number != IGNORE]

    @property
    def groups(self) -> dict[str, list[FrameKey]]:
        """Frames by the reason they were chosen for; those chosen evenly are in the order of time."""
        groups = {name: [key for key, reasons in self.chosen.items() if name in reasons] for name in GROUPS}
        return {name: sorted(keys) if name == EVENLY else keys for name, keys in groups.items() if keys}

    def content(self) -> dict[str, Any]:
        """Return the gallery for the page's script."""
        numbers = {key: number for number, key in enumerate(self.chosen)}
        return {
            "panels": [{"title": panel.title, "kind": panel.kind} for panel in self.panels],
            "items": [self._item(key) for key in self.chosen],
            "groups": {name: [numbers[key] for key in keys] for name, keys in self.groups.items()},
        }

    def _item(self, key: FrameKey) -> dict[str, Any]:
        name, index = key
        video = self.videos[name]
        photo = view_photo(video, index, min(PHOTO_SIDE, max(video.view.width, video.view.height)))
        masks = [panel.masks.get(key) for panel in self.panels]
        return {
            "groups": list(self.chosen[key]),
            "video": name,
            "index": index,
            "note": self.notes.get(key, ""),
            "photo": data_uri(photo),
            "width": photo.shape[1],
            "height": photo.shape[0],
            "masks": [None if ids is None else run_lengths(view_mask(ids, video, photo)) for ids in masks],
            "scores": [panel.scores.get(key) for panel in self.panels],
        }


def view_photo(video: Video, index: int, side: int) -> np.ndarray:
    """Read a frame cut to its view, black outside a circle, at a longer side of `side` pixels."""
    frame = np.where(video.view.mask(*video.size)[..., None], video.read(index), 0).astype(np.uint8)
    cropped = video.view.crop(frame)
    scale = side / max(cropped.shape[:2])
    size = (max(1, round(cropped.shape[1] * scale)), max(1, round(cropped.shape[0] * scale)))
    return cv2.resize(cropped, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)


def view_mask(ids: np.ndarray, video: Video, photo: np.ndarray) -> np.ndarray:
    """Cut class ids of a frame to the view, at the size of a photo of it."""
    return cv2.resize(video.view.crop(ids), photo.shape[1::-1], interpolation=cv2.INTER_NEAREST_EXACT)


def paint_view(photo: np.ndarray, ids: np.ndarray | None, video: Video, palette: np.ndarray) -> np.ndarray:
    """Paint class ids of a frame over a photo of its view; a missing mask leaves the photo as it is."""
    return photo if ids is None else paint_mask(photo, view_mask(ids, video, photo), palette, opacity=OPACITY)


def data_uri(rgb: np.ndarray) -> str:
    """Encode an image as WebP inside the page."""
    _, content = cv2.imencode(".webp", rgb[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, 80])
    return file_uri(content.tobytes(), "image/webp")


def file_uri(content: bytes, kind: str) -> str:
    """Encode a file inside the page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def run_lengths(ids: np.ndarray) -> str:
    """Encode class ids row by row as runs, each one number in base 36: 256 × length + id.

    >>> run_lengths(np.array([[0, 0, 1]])), int("74", 36), int("e8", 36)
    ('e8 75', 256, 512)
    """
    flat = ids.ravel().astype(np.int64)
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    lengths = np.diff(np.append(starts, flat.size))
    return " ".join(np.base_repr(number, 36).lower() for number in lengths * 256 + flat[starts])
