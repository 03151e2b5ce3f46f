"""Video files read by frame number: sequential and random access return the same frame."""

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import av
import av.container
import av.video
import cv2
import numpy as np
from av.video.frame import PictureType
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from suture.core.errors import UserError
from suture.data.cache import CachedArrays
from suture.data.images import MAX_PIXELS, deinterlace
from suture.data.view import View
from suture.data.yuv import YuvToRgb, sample_planes, split_planes, yuv_to_rgb

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts", ".wmv"}
)
_UNKNOWN_MATRICES = (2, 3)
"""Colour matrices unspecified and reserved; FFmpeg cannot convert the latter."""
_DEPENDENT_TYPES = (PictureType.P, PictureType.B)
_PLANAR_FORMATS = ("yuv420p", "yuvj420p")
_PROBE_SIDE = 256
MIN_CACHED_BYTES = 2**25
"""The packets of smaller files are listed faster than a list of them is found."""
MISSING_TOLERANCE_S = 0.2
"""Time (s) by which a file's stated duration may exceed its frames, besides 5 %."""
_MAX_IDLE_DECODERS = 4
"""An open decoder of large video holds tens of megabytes."""


class VideoFile:
    """The frames of a video file, in the order in which they are shown.

    The packets are listed on first use, without decoding. Reading forward goes on with an open decoder; anything else
    seeks to the keyframe before. Instances can be pickled, forked and shared by threads.

    Args:
        path: The file.
        threads: Threads of a decoder; one by default, because readers already run one process per core.
        deinterlace: Keep one of the two fields of each frame, and interpolate the other.

    >>> video = VideoFile(Path("case01.mp4"))  # doctest: +SKIP
    >>> len(video), video.size, video.read(1234).shape  # doctest: +SKIP
    (90000, (1920, 1080), (1080, 1920, 3))
    """

    def __init__(self, path: Path, threads: int = 1, deinterlace: bool = False) -> None:
        self.path = Path(path)
        self.threads = threads
        self.deinterlace = deinterlace

    def __repr__(self) -> str:
        return f"VideoFile({str(self.path)!r})"

    def __len__(self) -> int:
        return len(self._index.stamps)

    @property
    def missing(self) -> int:
        """Approximate number of frames that the header promises but that are not there: the file was cut off."""
        return self._index.missing

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the frames, after rotation."""
        return self._shape[0]

    @property
    def pixel_aspect(self) -> Fraction:
        """Width of a pixel divided by its height: 1 except in anamorphic video, as of PAL recorders."""
        return self._shape[1]

    @cached_property
    def times(self) -> np.ndarray:
        """Time of each frame in seconds."""
        return (self._index.stamps - self._index.begin) * self._index.time_base

    @property
    def fps(self) -> float:
        """Frames per second, averaged over the file."""
        span = float(self.times[-1] - self.times[0])
        return (len(self) - 1) / span if span > 0 else self._index.nominal_fps

    def read(self, index: int) -> np.ndarray:
        """Read one frame: RGB, uint8, H W 3."""
        return self.decode(index).rgb()

    def decode(self, index: int) -> "DecodedFrame":
        """Decode one frame without converting it to RGB, which takes longer and may happen on any thread."""
        if not 0 <= index < len(self):
            raise UserError(f"{self.path} has {len(self)} frames; there is no frame {index}.")
        decoder = _idle_decoders.take(self._index) or self._open()
        frame = decoder.read(index)
        _idle_decoders.put(decoder)
        return replace(frame, deinterlace=self.deinterlace)

    def frames(self, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """Iterate over the frames from `start` to before `stop`, as RGB."""
        stop = len(self) if stop is None else min(stop, len(self))
        with contextlib.closing(self._open()) as decoder:
            for index in range(start, stop):
                yield replace(decoder.read(index), deinterlace=self.deinterlace).rgb()

    def _open(self) -> "_Decoder":
        return _Decoder(self.path, self._index, self.threads)

    def key_before(self, index: int) -> int:
        """Return the last key frame at or before a frame; it decodes at once."""
        return self._index.key_before(index)

    def near_keys(self, indices: Sequence[int]) -> list[int]:
        """Move frames to the key frames before them; not if some would become the same."""
        keys = sorted({self.key_before(index) for index in indices})
        return keys if len(keys) == len(indices) else list(indices)

    def pieces(self, indices: Sequence[int], length: int) -> list[Sequence[int]]:
        """Divide rising indices into pieces of about `length` frames, which begin at key frames where possible."""
        group = np.searchsorted(self._index.keys, indices, side="right")
        starts = [0]
        for place in 1 + np.flatnonzero(np.diff(group)):
            if place - starts[-1] >= length:
                starts.append(int(place))
        return [indices[start:stop] for start, stop in itertools.pairwise([*starts, len(indices)])]

    @cached_property
    def _index(self) -> "_FrameIndex":
        if not self.path.is_file() or self.path.stat().st_size < MIN_CACHED_BYTES:
            return _read_index(self.path)
        cached = CachedArrays([self.path], "frame index 1")
        if (known := cached.load()) is None:
            index = _read_index(self.path)
            cached.save({name: np.asarray(getattr(index, name)) for name in index.__slots__})
            return index
        values: Any = {name: value if value.ndim else value.item() for name, value in known.items()}
        return _FrameIndex(**values)

    @cached_property
    def _shape(self) -> tuple[tuple[int, int], Fraction]:
        """Size and pixel aspect of the first frame that decodes."""
        with contextlib.closing(self._open()) as decoder:
            aspect = decoder.pixel_aspect
            for _, frame in decoder.frames():
                if _quarter_turns(frame) % 2:
                    return (frame.height, frame.width), 1 / aspect
                return (frame.width, frame.height), aspect
        raise UserError(f"{self.path} holds no frame that decodes: it is damaged or of an unknown codec.")


@dataclass(frozen=True, slots=True)
class _FrameIndex:
    """The frames of a file in the order in which they are shown."""

    stamps: np.ndarray
    """Time stamp of each frame, rising, in units of `time_base`."""
    keys: np.ndarray
    """Positions from which decoding can begin, rising; 0 is one of them."""
    timed: bool
    """Decoded frames are recognised by their stamp. Otherwise, as for H.264 in AVI, they are counted from the start."""
    begin: int
    """Stamp of second 0."""
    time_base: float
    nominal_fps: float
    missing: int

    def key_before(self, position: int) -> int:
        """Return the last key at or before a frame."""
        return int(self.keys[np.searchsorted(self.keys, position, side="right") - 1])

    def position(self, stamp: int | None) -> int | None:
        """Return the position of the frame with this stamp."""
        position = int(np.searchsorted(self.stamps, -1 if stamp is None else stamp))
        return position if position < len(self.stamps) and self.stamps[position] == stamp else None


class _Decoder:
    """An open file, and the position of the next frame that it gives."""

    def __init__(self, path: Path, index: _FrameIndex, threads: int) -> None:
        self.path = path
        self.index = index
        self.threads = threads
        self._next = 0
        self._decoded: Iterator[av.VideoFrame] = iter(())
        self._open()

    def read(self, position: int) -> "DecodedFrame":
        if position != self._next:
            key = self.index.key_before(position)
            if not key <= self._next <= position:
                self._seek(key)
        for current, frame in self.frames():
            if current == position and not frame.is_corrupt:
                return DecodedFrame(frame)
            if current >= position:
                break
        raise UserError(f"{self.path}: frame {position} does not decode: copy the file again, or exclude the frame.")

    def frames(self) -> Iterator[tuple[int, av.VideoFrame]]:
        """Iterate over all frames that decode from here on, with their positions."""
        for frame in self._decoded:
            position = self.index.position(frame.pts) if self.index.timed else self._next
            if position is not None:
                self._next = position + 1
                yield position, frame
        self._next = len(self.index.stamps)

    @property
    def pixel_aspect(self) -> Fraction:
        """Aspect of the pixels before rotation; 1 where the file has none."""
        return Fraction(self._stream.sample_aspect_ratio or 1)

    def close(self) -> None:
        self._container.close()

    def _open(self) -> None:
        self._container, self._stream = _open(self.path)
        self._stream.codec_context.thread_count = self.threads
        self._stream.codec_context.thread_type = "AUTO"
        self._next = 0
        self._decoded = self._decode()

    def _seek(self, key: int) -> None:
        """Go to a key; if it turns out to be none, to the key before, and at last to the beginning."""
        for start in (key, self.index.key_before(max(key - 1, 0))):
            if start == 0:
                break
            try:
                self._container.seek(int(self.index.stamps[start]), stream=self._stream)
            except av.FFmpegError:
                break
            self._decoded = self._decode()
            for current, frame in self.frames():
                if current == start and frame.pict_type not in _DEPENDENT_TYPES:
                    self._next = current
                    self._decoded = itertools.chain([frame], self._decoded)
                    return
                if current >= start:
                    break
        self.close()
        self._open()

    def _decode(self) -> Iterator[av.VideoFrame]:
        with contextlib.suppress(av.FFmpegError):  # the file ends in the middle of a packet
            for packet in self._container.demux(self._stream):
                if not packet.is_corrupt:  # its error would cost good frames on other threads
                    with contextlib.suppress(av.FFmpegError):  # the frame is missing then
                        yield from packet.decode()


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """A decoded frame, not yet converted to RGB."""

    frame: av.VideoFrame
    deinterlace: bool = False

    def rgb(self) -> np.ndarray:
        """Convert to RGB, uint8, H W 3, by the file's colour matrix and range, or by those of the frame's size."""
        frame = self.frame
        matrix = None if frame.format.is_rgb else self._assumed_matrix
        # No flags: FFmpeg's usual conversion is fast, and frames extracted elsewhere went through it.
        converted = _converter.reformat(
            frame, format="rgb24", src_colorspace=matrix, dst_color_range=ColorRange.JPEG, threads=1
        )
        pixels = deinterlace(converted.to_ndarray()) if self.deinterlace else converted.to_ndarray()
        turned = np.rot90(pixels, _quarter_turns(frame))
        return np.ascontiguousarray(turned)

    def brightness(self) -> np.ndarray:
        """Return the brightness of each pixel, uint8, H W; of frames without planes the green channel."""
        if self.planes() is None:
            return np.ascontiguousarray(self.rgb()[..., 1])
        return _lines(self.frame.planes[0])

    def thumbnail(self, view: View, side: int) -> np.ndarray:
        """Shrink the view to side × side pixels, RGB, without converting the whole frame."""
        planes = self.planes()
        if planes is None:
            return cv2.resize(view.crop(self.rgb()), (side, side), interpolation=cv2.INTER_AREA)
        sampled = []
        for plane, divisor in zip(self.frame.planes, (1, 2, 2), strict=True):
            top, left = view.y // divisor, view.x // divisor
            bottom, right = -(-(view.y + view.height) // divisor), -(-(view.x + view.width) // divisor)
            part = _lines(plane)[top:bottom, left:right]
            sampled.append(cv2.resize(part, (4 * side, 4 * side), interpolation=cv2.INTER_NEAREST))
        small = cv2.resize(cv2.merge(sampled), (side, side), interpolation=cv2.INTER_AREA)
        return yuv_to_rgb(small, planes.colours)

    def planes(self) -> "YuvPlanes | None":
        """Return the planes of an upright, progressive 8-bit yuv420 frame; None for other frames."""
        frame = self.frame
        if frame.format.name not in _PLANAR_FORMATS or frame.interlaced_frame or frame.width % 2 or frame.height % 2:
            return None
        if self.deinterlace or _quarter_turns(frame) or frame.planes[0].line_size < 0:  # stored upside down
            return None
        matrix = self._assumed_matrix or frame.colorspace
        return YuvPlanes(frame, _fit_yuv_to_rgb(frame.format.name, matrix, frame.color_range, frame.width % 64))

    @property
    def _assumed_matrix(self) -> Colorspace | None:
        """Colour matrix by the frame's size, where the file has none."""
        if self.frame.colorspace not in _UNKNOWN_MATRICES:
            return None
        high_definition = self.frame.width >= 1280 or self.frame.height > 576
        return Colorspace.ITU709 if high_definition else Colorspace.ITU601


@dataclass(frozen=True, slots=True)
class YuvPlanes:
    """A decoded frame as the planes of `suture.data.yuv`: half the bytes of RGB."""

    frame: av.VideoFrame
    colours: YuvToRgb

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the array that takes all planes."""
        return self.frame.height * 3 // 2, self.frame.width

    def copy_to(self, memory: np.ndarray) -> None:
        """Copy all planes, below each other, into an array of `shape`."""
        for source, target in zip(self.frame.planes, split_planes(memory), strict=True):
            np.copyto(target, _lines(source))  # whole planes, which releases Python's lock


def _lines(plane: Any) -> np.ndarray:
    """Return a plane as an array, without a copy; its lines may be longer than they are wide."""
    return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]


@lru_cache(maxsize=64)
def _fit_yuv_to_rgb(pixel_format: str, matrix: int, color_range: int, beyond: int) -> YuvToRgb:
    """Fit the linear part of FFmpeg's conversion of planes to RGB.

    The textbook's matrix is a level or two off: FFmpeg rounds after each product, differently by processor and by the
    number of pixels `beyond` a multiple of 64. Masks must not depend on where frames become RGB.
    """
    frame = av.VideoFrame(_PROBE_SIDE + beyond, _PROBE_SIDE, pixel_format)
    frame.colorspace, frame.color_range = matrix, color_range
    generator = np.random.default_rng(0)
    planes: Any = frame.planes
    for plane, (low, high) in zip(planes, [(70, 180), (100, 156), (100, 156)], strict=True):  # no channel overflows
        plane.update(generator.integers(low, high, plane.buffer_size, np.uint8).tobytes())
    yuv = np.insert(sample_planes(frame.to_ndarray()).reshape(-1, 3), 3, 1, axis=1).astype(float)
    rgb = DecodedFrame(frame).rgb().reshape(-1, 3).astype(float)
    matrix_t, *_ = np.linalg.lstsq(yuv, rgb, rcond=None)
    return YuvToRgb(*map(tuple, matrix_t.T.round(6).tolist()))  # no digits that differ from call to call


class _IdleDecoders:
    """Open decoders that are not in use, so that reading goes on where it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decoders: list[_Decoder] = []
        self._inherited: list[_Decoder] = []
        os.register_at_fork(after_in_child=self._reset_in_child)

    def take(self, index: _FrameIndex) -> _Decoder | None:
        with self._lock:
            for place, decoder in enumerate(self._decoders):
                if decoder.index is index:
                    return self._decoders.pop(place)
        return None

    def put(self, decoder: _Decoder) -> None:
        with self._lock:
            self._decoders.append(decoder)
            surplus = self._decoders.pop(0) if len(self._decoders) > _MAX_IDLE_DECODERS else None
        if surplus is not None:
            surplus.close()

    def _reset_in_child(self) -> None:
        # A fork shares its parent's place in the open files: using them would disturb both, closing them may hang.
        self._inherited += self._decoders
        self._lock, self._decoders = threading.Lock(), []


_idle_decoders = _IdleDecoders()


def _open(path: Path) -> tuple[av.container.InputContainer, av.video.VideoStream]:
    if not path.is_file():  # reading a pipe could block forever
        raise UserError(f"{path} is not a file: expected a video.")
    # A title in an unknown encoding must not stop the reading. PyAV 19 and later ignore it by default.
    lenient: dict[str, Any] = {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}
    try:
        container = av.open(f"file:{path}", **lenient)  # "file:", or FFmpeg takes 12:30.mp4 for a protocol
    except (av.FFmpegError, OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{path} is not a video that can be read ({why}): copy or export it again.") from error
    for stream in container.streams.video:
        cover = stream.disposition & av.stream.Disposition.attached_pic
        if not cover and stream.codec_context is not None and stream.width * stream.height <= MAX_PIXELS:
            return container, stream
    container.close()
    raise UserError(f"{path} holds no video, only sound or data, or one of an unknown codec: convert it to H.264.")


def _read_index(path: Path) -> _FrameIndex:
    container, stream = _open(path)
    # The header is read first: a closed file gives no answers.
    kind, reorders = container.format.name, stream.codec_context.has_b_frames
    time_base, fps = float(stream.time_base or 1), float(stream.average_rate or 25)
    seconds = (stream.duration or 0) * time_base or (container.duration or 0) / av.time_base
    listed: list[tuple[int | None, int | None, bool]] = []
    with container, contextlib.suppress(av.FFmpegError):  # of a file that was cut off, the rest counts
        for packet in container.demux(stream):
            if packet.size and not packet.is_corrupt and not packet.is_discard:
                listed.append((packet.pts, packet.dts, packet.is_keyframe))
    if not listed:
        raise UserError(f"{path} holds no frames: it is cut off or its recording was never finished.")
    has_clock = kind in ("mpeg", "mpegts")
    if has_clock and _has_second_fields(listed, 1 / (fps * time_base)):
        listed = [packet for packet in listed if packet[0] is not None]
    shown, sent, keys = zip(*listed, strict=True)
    # AVI has no presentation stamps: FFmpeg makes them up in coding order, which is wrong where a codec reorders.
    made_up = kind == "avi" and reorders and (None in shown or (np.diff(np.array(shown, np.int64)) > 0).all())
    # A clock that goes back is that of a second recording, appended as bytes.
    joined = has_clock and (np.diff([stamp for stamp in sent if stamp is not None]) < 0).any()
    timed = _are_distinct(shown) and not made_up and not joined
    if not timed and _are_distinct(sent) and not joined:
        shown = sent
    elif not timed:
        shown, time_base = tuple(range(len(sent))), 1 / fps
    stamps = np.array(shown, np.int64)
    order = np.argsort(stamps)
    is_key = np.array(keys)[order] & timed
    is_key[0] = True
    begin = int(stamps.min()) if has_clock else 0
    end = max(float((stamps.max() - begin) * time_base), len(stamps) / fps)
    # Sound may make the file a little longer.
    missing = round((seconds - end) * fps) if seconds > 1.05 * end + MISSING_TOLERANCE_S else 0
    return _FrameIndex(stamps[order], np.flatnonzero(is_key), timed, begin, time_base, fps, missing)


def _are_distinct(stamps: Sequence[int | None]) -> bool:
    return None not in stamps and len(set(stamps)) == len(stamps)


def _has_second_fields(packets: Sequence[tuple[int | None, int | None, bool]], period: float) -> bool:
    """Test whether packets without a time stamp hold second fields, as of 1080i recorders: they take no time."""
    steps = [
        after[1] - before[1]
        for before, here, after in zip(packets, packets[1:], packets[2:], strict=False)
        if here[0] is None and before[1] is not None and after[1] is not None
    ]
    return bool(steps) and float(np.median(steps)) < 1.5 * period


def _quarter_turns(frame: av.VideoFrame) -> int:
    """Quarter turns, anticlockwise, that bring a decoded frame upright."""
    return round(frame.rotation / 90) % 4


class _Converter(threading.local):
    """Converter of one thread, which converts one frame at a time."""

    def __init__(self) -> None:
        # Not the one that PyAV may share between frames: a fork loses the threads in it, and waits for them.
        self.reformat = VideoReformatter().reformat


_converter = _Converter()
