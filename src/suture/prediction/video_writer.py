"""Videos of a clip: the overlay in H.264, the masks in FFV1.

An H.264 encoder builds each frame on the one before, so its threads wait for each other. With many cores several
encoders work at the same time, each on a group of frames that builds on no other.
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
from suture.prediction.prefetch import cores

Codec = Literal["libx264", "ffv1"]
Accepted = Future[None] | None
"""Done when the encoder has copied a frame, whose memory is then free; None if it is free already."""
TICK = Fraction(1, 90_000)
"""Time base of written videos: MPEG's own, which frame rates and milliseconds divide."""
SQUARE = Fraction(1)
"""Aspect ratio of pixels in most videos."""
_BT601 = 6  # FFmpeg's number of the matrix by which OpenCV converts to yuv420
_LIMITED, _FULL = 1, 2
_H264 = {"qp": "25", "preset": "ultrafast", "forced-idr": "1", "x264-params": "ipratio=1"}
"""Encoding must not delay the prediction: a fifth of the work of `veryfast` at crf 20 with about the same noise, for
half as many bytes again (benchmarks/film.py). Without `ipratio`, the first frame of a group would look different."""
_FFV1 = {"level": "3", "slicecrc": "1"}
GROUP_FRAMES = 16
"""Frames of a group. More frames hold more memory; fewer make larger files, as the first one takes the most bytes."""
ENCODER_THREADS = 4
"""Threads of each encoder, if there are several."""
MAX_ENCODERS = 4


def encoders() -> int:
    """Number of H.264 encoders that work on one video at the same time."""
    return max(1, min(MAX_ENCODERS, cores() // ENCODER_THREADS))


def rgb_to_planes(pixels: np.ndarray) -> np.ndarray:
    """Convert RGB to planes of yuv420; an odd side grows by one pixel."""
    height, width = pixels.shape[:2]
    if height % 2 or width % 2:
        pixels = cv2.copyMakeBorder(pixels, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2YUV_I420)


def video_frame(planes: np.ndarray, kind: Literal["gray", "yuv420p"]) -> av.VideoFrame:
    """Make a frame for a `VideoWriter` from a mask, or from planes of `rgb_to_planes`."""
    rows, width = planes.shape
    if kind == "yuv420p" and rows % 6 == 0 and planes.flags.c_contiguous:
        return av.VideoFrame.from_numpy_buffer(planes, kind)  # without a copy; it would cut off other heights
    # Not by PyAV, which copies line by line and holds Python's lock meanwhile.
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
    """One video stream, written frame by frame with the times of the original."""

    def __init__(self, path: Path, codec: Codec, fps: float, pixel_aspect: Fraction) -> None:
        self.codec, self.pixel_aspect = codec, pixel_aspect
        self._container = av.open(str(path), "w", options={"fflags": "+bitexact"})  # no random ids, no dates
        rate = Fraction(min(max(fps, 1), 1000)).limit_denominator(1001)
        self._stream: Any = self._container.add_stream(codec, rate=rate)
        self._encoders: list[Any] = []
        """The stream's own, and others that take turns with it."""
        self._threads: list[ThreadPoolExecutor] = []
        """One for each encoder, if there are several."""
        self._running = ExitStack()
        self._accepting: deque[Future[None]] = deque()
        """Frames that the encoders may not have copied yet."""
        self._lock = Lock()
        self._times: deque[int] = deque()
        """Time stamps of frames that are not in the file yet."""
        self._packets: dict[int, av.Packet] = {}
        """Encoded frames that wait for earlier ones, by time stamp."""
        self._count, self._last = 0, -1

    def add(self, frame: av.VideoFrame, seconds: float) -> Accepted:
        """Add a frame: yuv420p for H.264, gray for FFV1. Waits while the encoders are busy.

        An error of an earlier frame is raised here or by `close`.
        """
        if not self._encoders:
            self._begin(frame)
        frame.color_range = self._encoders[0].color_range
        # Times rise, also for a damaged file whose times do not.
        self._last = max(round(seconds / TICK), self._last + 1)
        frame.pts, frame.time_base = self._last, TICK
        self._times.append(self._last)
        group, place = divmod(self._count, GROUP_FRAMES)
        self._count += 1
        if not self._threads:
            self._encode(self._encoders[0], frame)
            return None
        if place == 0:
            frame.pict_type = PictureType.I
        while len(self._accepting) > GROUP_FRAMES * len(self._encoders):
            self._accepting.popleft().result()
        turn = group % len(self._encoders)
        self._accepting.append(self._threads[turn].submit(self._encode, self._encoders[turn], frame))
        return self._accepting[-1]

    def close(self) -> None:
        """Complete the file."""
        try:
            self._running.close()
            while self._accepting:
                self._accepting.popleft().result()
            for encoder in self._encoders:
                if encoder.is_open:  # it was used
                    self._encode(encoder, None)
        finally:
            with self._lock:
                self._times.clear()  # after Ctrl-C a thread may still encode, and must not write
                self._container.close()

    def _begin(self, frame: av.VideoFrame) -> None:
        own = self._stream.codec_context
        count = encoders() if self.codec == "libx264" else 1
        self._encoders = [own, *(av.CodecContext.create(self.codec, "w") for _ in range(count - 1))]
        for encoder in self._encoders:
            encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, frame.format.name
            # The file describes once how to decode all its frames, so nothing may differ.
            encoder.time_base, encoder.framerate, encoder.flags = TICK, own.framerate, own.flags
            if self.pixel_aspect != SQUARE:
                encoder.sample_aspect_ratio = self.pixel_aspect
            if self.codec == "libx264":
                encoder.options, encoder.color_range, encoder.colorspace = dict(_H264), _LIMITED, _BT601
            else:
                encoder.options, encoder.color_range = dict(_FFV1), _FULL
            # Threads per frame: with slices, cores wait.
            encoder.thread_count, encoder.thread_type = 0 if count == 1 else ENCODER_THREADS, "AUTO"
        if count > 1:
            self._threads = [self._running.enter_context(ThreadPoolExecutor(1)) for _ in self._encoders]

    def _encode(self, encoder: Any, frame: av.VideoFrame | None) -> None:
        """Encode a frame, or with None flush the encoder; write the frames whose turn it is."""
        packets = encoder.encode(frame)
        with self._lock:
            for packet in packets:
                packet.stream = self._stream
                self._packets[packet.pts] = packet
            while self._times and self._times[0] in self._packets:
                self._container.mux(self._packets.pop(self._times.popleft()))


@contextmanager
def video_writer(path: Path, codec: Codec, fps: float, pixel_aspect: Fraction = SQUARE) -> Iterator[VideoWriter]:
    """Write a video that appears under its name once it is complete."""
    with replacing(path) as temporary:
        writer = VideoWriter(temporary, codec, fps, pixel_aspect)
        try:
            yield writer
        finally:
            writer.close()
