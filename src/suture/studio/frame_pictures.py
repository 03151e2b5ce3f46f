"""FramePictures: frames as JPEG, kept for scrubbing back and forth."""

import threading
from collections import OrderedDict, defaultdict

import cv2

from suture.data.dataset import Video

MAX_CACHED_BYTES = 256 * 2**20
BACKWARD_FRAMES = 16
"""Frames that are read at once when the user steps backward: each would be a seek of its own."""
QUALITY, THUMBNAIL_QUALITY = 92, 80


class FramePictures:
    """JPEG pictures of frames, the recent ones in memory; threads may share it."""

    def __init__(self) -> None:
        self._pictures: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._bytes = 0
        self._last: dict[str, int] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._changing = threading.Lock()

    def jpeg(self, video: Video, index: int, side: int = 0) -> bytes:
        """Return a frame as JPEG, at native size or with this longer side."""
        with self._locks[video.id]:
            last = self._last.get(video.id, -1)
            if (picture := self._take((video.id, index, side))) is None:
                backward = not side and video.file is not None and 0 < last - index <= BACKWARD_FRAMES
                first = max(0, index - BACKWARD_FRAMES + 1) if backward else index
                for one in range(first, index + 1):
                    if one == index or (video.id, one, side) not in self._pictures:
                        picture = self._make(video, one, side)
            if not side:
                self._last[video.id] = index
            assert picture is not None
            return picture

    def _make(self, video: Video, index: int, side: int) -> bytes:
        pixels = cv2.cvtColor(video.read(index), cv2.COLOR_RGB2BGR)
        height, width = pixels.shape[:2]
        if side and max(height, width) > side:
            scale = side / max(height, width)
            size = max(1, round(width * scale)), max(1, round(height * scale))
            pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
        quality = THUMBNAIL_QUALITY if side else QUALITY
        picture = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        with self._changing:
            self._pictures[video.id, index, side] = picture
            self._bytes += len(picture)
            while self._bytes > MAX_CACHED_BYTES:
                self._bytes -= len(self._pictures.popitem(last=False)[1])
        return picture

    def _take(self, key: tuple[str, int, int]) -> bytes | None:
        with self._changing:
            if key in self._pictures:
                self._pictures.move_to_end(key)
            return self._pictures.get(key)
