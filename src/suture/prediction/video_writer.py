"""The videos that are written of a clip: the overlay in H.264, the masks in FFV1, each whole or not there.

An encoder of H.264 builds each frame on the one before, so that however many threads it has, some wait for each other.
Where there are many cores several encoders work at the same time, each on a group of frames that builds on no other.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import av
import cv2
import numpy as np
from av.video.frame import PictureType

from suture.core.io import replacing
from suture.prediction.overlap import cores

Codec = Literal["libx264", "ffv1"]
Taken = Future[None] | None
"""Done when an encoder has taken a frame, whose memory may then be used anew; None where it has already."""
TICK = Fraction(1, 90_000)
"""The clock of written videos: MPEG's own, which frame rates and milliseconds divide."""
SQUARE = Fraction(1)
"""How wide a pixel is shown by its height, in most videos."""
_BT601 = 6  # the matrix that OpenCV converts to yuv420 by, named as FFmpeg names it
_LIMITED, _FULL = 1, 2
_H264 = {"qp": "25", "preset": "ultrafast", "forced-idr": "1", "x264-params": "ipratio=1"}
"""Encoding must not hold back what predicts: a fifth of the work of `veryfast` at crf 20 at about the same
signal-to-noise ratio, for half as many bytes again (benchmarks/film.py). To spend the same on each frame spares a third
of what crf takes. The first frame of a group builds on nothing before; without `ipratio` it would stand out."""
_FFV1 = {"level": "3", "slicecrc": "1"}
GROUP = 16
"""Frames of a group. All encoders are at work only if so many frames each are waiting for them, and these hold memory;
but the first frame of a group takes several times the bytes of others."""
THREADS = 4
"""Of each encoder, where there are several: few wait little for each other."""
MOST = 4
"""Encoders."""


def encoders() -> int:
    """How many encoders of H.264 work on one video at the same time."""
    return max(1, min(MOST, cores() // THREADS))


def to_yuv(pixels: np.ndarray) -> np.ndarray:
    """RGB as planes of yuv420; an odd side is continued by one pixel, as the format needs even ones."""
    height, width = pixels.shape[:2]
    if height % 2 or width % 2:
        pixels = cv2.copyMakeBorder(pixels, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2YUV_I420)


def video_frame(planes: np.ndarray, kind: Literal["gray", "yuv420p"]) -> av.VideoFrame:
    """A frame for a `VideoWriter`: of a mask, or of planes from `to_yuv`."""
    rows, width = planes.shape
    if kind == "yuv420p" and rows % 6 == 0 and planes.flags.c_contiguous:
        return av.VideoFrame.from_numpy_buffer(planes, kind)  # where they are; other heights it would cut off
    # PyAV's copies go line by line, and hold Python's lock meanwhile.
    frame = av.VideoFrame(width, rows if kind == "gray" else rows * 2 // 3, kind)
    targets: Any = frame.planes
    start = 0
    for plane in targets:
        end = start + plane.height * plane.width
        target = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
        target[:, : plane.width] = planes.reshape(-1)[start:end].reshape(plane.height, plane.width)
        start = end
    return frame


class VideoWriter:
    """One video stream, written frame by frame with the times that the frames had in the original."""

    def __init__(self, path: Path, codec: Codec, fps: float, pixel_aspect: Fraction) -> None:
        self.codec, self.pixel_aspect = codec, pixel_aspect
        self._container = av.open(str(path), "w", options={"fflags": "+bitexact"})  # no random ids, no dates
        rate = Fraction(min(max(fps, 1), 1000)).limit_denominator(1001)
        self._stream: Any = self._container.add_stream(codec, rate=rate)
        self._encoders: list[Any] = []
        """The stream's own, and others like it that take turns with it."""
        self._threads: list[ThreadPoolExecutor] = []
        """One for each, where there are several."""
        self._running = ExitStack()
        self._taking: deque[Future[None]] = deque()
        """Frames that the encoders may not have taken yet."""
        self._lock = Lock()
        self._times: deque[int] = deque()
        """Of the frames that are not in the file yet, in their order."""
        self._packets: dict[int, av.Packet] = {}
        """Encoded frames that wait for those before them, by time."""
        self._count, self._last = 0, -1

    def add(self, frame: av.VideoFrame, seconds: float) -> Taken:
        """A frame: of kind yuv420p for H.264, gray for FFV1. Waits while the encoders have enough to do.

        An error of an earlier frame comes out here, or in the end.
        """
        if not self._encoders:
            self._begin(frame)
        frame.color_range = self._encoders[0].color_range
        # Time goes forward even where a damaged file's does not.
        self._last = max(round(seconds / TICK), self._last + 1)
        frame.pts, frame.time_base = self._last, TICK
        self._times.append(self._last)
        group, place = divmod(self._count, GROUP)
        self._count += 1
        if not self._threads:
            self._encode(self._encoders[0], frame)
            return None
        if place == 0:
            frame.pict_type = PictureType.I
        while len(self._taking) > GROUP * len(self._encoders):
            self._taking.popleft().result()
        turn = group % len(self._encoders)
        self._taking.append(self._threads[turn].submit(self._encode, self._encoders[turn], frame))
        return self._taking[-1]

    def close(self) -> None:
        """Wait until all is in the file."""
        try:
            self._running.close()
            while self._taking:
                self._taking.popleft().result()
            for encoder in self._encoders:
                if encoder.is_open:  # it had a turn
                    self._encode(encoder, None)
        finally:
            with self._lock:
                self._times.clear()  # where Ctrl-C ended the wait, a thread may still encode: it must not write then
                self._container.close()

    def _begin(self, frame: av.VideoFrame) -> None:
        own = self._stream.codec_context
        count = encoders() if self.codec == "libx264" else 1
        self._encoders = [own, *(av.CodecContext.create(self.codec, "w") for _ in range(count - 1))]
        for encoder in self._encoders:
            encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, frame.format.name
            # The file says once for all of its frames how to decode them, so that nothing may differ.
            encoder.time_base, encoder.framerate, encoder.flags = TICK, own.framerate, own.flags
            if self.pixel_aspect != SQUARE:  # which goes without saying
                encoder.sample_aspect_ratio = self.pixel_aspect
            if self.codec == "libx264":
                encoder.options, encoder.color_range, encoder.colorspace = dict(_H264), _LIMITED, _BT601
            else:
                encoder.options, encoder.color_range = dict(_FFV1), _FULL
            # H.264 frame by frame: by slices, cores wait.
            encoder.thread_count, encoder.thread_type = 0 if count == 1 else THREADS, "AUTO"
        if count > 1:
            self._threads = [self._running.enter_context(ThreadPoolExecutor(1)) for _ in self._encoders]

    def _encode(self, encoder: Any, frame: av.VideoFrame | None) -> None:
        """Encode a frame, or with None those that an encoder still holds back; write what has its turn."""
        packets = encoder.encode(frame)
        with self._lock:
            for packet in packets:
                packet.stream = self._stream
                self._packets[packet.pts] = packet
            while self._times and self._times[0] in self._packets:
                self._container.mux(self._packets.pop(self._times.popleft()))


@contextmanager
def video_writer(path: Path, codec: Codec, fps: float, pixel_aspect: Fraction = SQUARE) -> Iterator[VideoWriter]:
    """A video that appears under its name once it is whole."""
    with replacing(path) as temporary:
        writer = VideoWriter(temporary, codec, fps, pixel_aspect)
        try:
            yield writer
        finally:
            writer.close()
