"""FramePictures: frames as JPEG, kept for scrubbing back and forth."""

import threading
from collections import defaultdict
from functools import lru_cache

import cv2

from suture.data.dataset import Video

MAX_KEPT_PICTURES = 1000
"""About 200 MB at 1280×720."""
BLOCK_FRAMES = 32
"""Frames that are read at once when the user steps backward: each would be a seek of its own."""
QUALITY, THUMBNAIL_QUALITY = 92, 80


class FramePictures:
    """JPEG pictures of frames, the recent ones in memory; threads may share it."""

    def __init__(self) -> None:
        self._picture = lru_cache(MAX_KEPT_PICTURES)(make_picture)
        self._last: dict[str, int] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def jpeg(self, video: Video, index: int, side: int = 0) -> bytes:
        """Return a frame as JPEG, at native size or with this longer side."""
        with self._locks[video.id]:
            if not side:
                if video.file is not None and 0 < self._last.get(video.id, 0) - index <= BLOCK_FRAMES:
                    for before in range(index - index % BLOCK_FRAMES, index):
                        self._picture(video, before, 0)
                self._last[video.id] = index
            return self._picture(video, index, side)


def make_picture(video: Video, index: int, side: int) -> bytes:
    """Encode a frame as JPEG; `side` limits its longer side, 0 does not."""
    pixels = cv2.cvtColor(video.read(index), cv2.COLOR_RGB2BGR)
    height, width = pixels.shape[:2]
    if side and max(height, width) > side:
        scale = side / max(height, width)
        size = max(1, round(width * scale)), max(1, round(height * scale))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    quality = THUMBNAIL_QUALITY if side else QUALITY
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
