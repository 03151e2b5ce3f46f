"""Video files through PyAV, read by frame number: frame 1234 is the same picture however one comes to it."""

import contextlib
import itertools
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import av
import av.container
import av.video
import numpy as np
from av.video.frame import PictureType
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from suture.core.errors import UserError
from suture.data.images import MAX_PIXELS
from suture.data.yuv import YuvToRgb, sample_planes, split_planes

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts", ".wmv"}
)
_UNSAID = (2, 3)
"""The colour matrix of a file that does not say it: unspecified, or the reserved value, which FFmpeg cannot convert."""
_DEPENDENT = (PictureType.P, PictureType.B)
_PLAIN = ("yuv420p", "yuvj420p")
"""What most video files hold."""
_PROBE = 256
"""The sides of a picture that tells how FFmpeg converts others, at least."""


class VideoFile:
    """The frames of a video file, in the order in which they are shown.

    Opening costs nothing; the first question reads the file's packets once, without decoding, and lists the frames.
    Reading the frames one after the other goes on with an open decoder, anything else seeks to the keyframe before.
    It can be pickled, forked and shared by threads.

    >>> video = VideoFile(Path("case01.mp4"))  # doctest: +SKIP
    >>> len(video), video.size, video.read(1234).shape  # doctest: +SKIP
    (90000, (1920, 1080), (1080, 1920, 3))
    """

    def __init__(self, path: Path, threads: int = 1) -> None:
        self.path = Path(path)
        self.threads = threads
        """Threads of a decoder: one, because the store and the loaders already run one process per core."""

    def __repr__(self) -> str:
        return f"VideoFile({str(self.path)!r})"

    def __len__(self) -> int:
        return len(self._index.stamps)

    @property
    def missing(self) -> int:
        """About how many frames its header promises beyond those that are there: it was cut off."""
        return self._index.missing

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the frames as they are shown, that is after rotation."""
        return self._first.size

    @property
    def pixel_aspect(self) -> Fraction:
        """How many times as wide as high a pixel is to be shown: 1 but in anamorphic video, as of PAL recorders."""
        return self._first.pixel_aspect

    @property
    def interlaced(self) -> bool:
        """Whether the first frames say that they consist of two fields, taken at different times."""
        return self._first.interlaced

    @cached_property
    def times(self) -> np.ndarray:
        """When each frame is shown, in seconds."""
        return (self._index.stamps - self._index.begins) * self._index.time_base

    @property
    def fps(self) -> float:
        """Frames per second, averaged over the file."""
        span = float(self.times[-1] - self.times[0])
        return (len(self) - 1) / span if span > 0 else self._index.nominal_fps

    def read(self, index: int) -> np.ndarray:
        """One frame: RGB, uint8, H W 3."""
        return self.decode(index).rgb()

    def decode(self, index: int) -> "DecodedFrame":
        """One frame as the file has it: to turn it into RGB takes longer than to decode it, and any thread may."""
        if not 0 <= index < len(self):
            raise UserError(f"{self.path} has {len(self)} frames, frame {index} was asked for.")
        decoder = _idle.take(self._index) or self._open()
        picture = decoder.read(index)
        _idle.put(decoder)
        return picture

    def frames(self, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """The frames from `start` to before `stop`, one after the other."""
        stop = len(self) if stop is None else min(stop, len(self))
        with contextlib.closing(self._open()) as decoder:
            for index in range(start, stop):
                yield decoder.read(index).rgb()

    def _open(self) -> "_Decoder":
        return _Decoder(self.path, self._index, self.threads)

    @cached_property
    def _index(self) -> "_Index":
        return _read_index(self.path)

    @cached_property
    def _first(self) -> "_First":
        with contextlib.closing(self._open()) as decoder:
            pictures = [picture for _, picture in itertools.islice(decoder.pictures(), 4)]
            aspect = decoder.pixel_aspect
        if not pictures:
            raise UserError(f"{self.path} holds no frame that decodes: the file is damaged or of an unknown codec.")
        width, height = pictures[0].width, pictures[0].height
        quarters, _ = _orientation(pictures[0], decoder.tagged_rotation)
        size, aspect = ((height, width), 1 / aspect) if quarters % 2 else ((width, height), aspect)
        return _First(size, aspect, any(picture.interlaced_frame for picture in pictures))


@dataclass(frozen=True, slots=True)
class _First:
    """What only the first decoded frames tell."""

    size: tuple[int, int]
    pixel_aspect: Fraction
    interlaced: bool


@dataclass(frozen=True, slots=True)
class _Index:
    """The frames of a file in the order in which they are shown."""

    stamps: np.ndarray
    """A time stamp per frame, rising, in units of `time_base`."""
    keys: np.ndarray
    """Positions of the frames from which decoding can begin, rising; 0 is always one of them."""
    timed: bool
    """Whether frames are recognised by their stamp when they come out of the decoder. H.264 in AVI only knows the order
    in which its frames were coded: they are then counted, always from the beginning."""
    begins: int
    """The stamp of second 0: that of the first frame where a file has a clock of its own, as a broadcast does."""
    time_base: float
    nominal_fps: float
    missing: int
    """Frames that the file's header promises and that are not there."""

    def key_before(self, position: int) -> int:
        """The last key at or before a frame."""
        return int(self.keys[np.searchsorted(self.keys, position, side="right") - 1])

    def position(self, stamp: int | None) -> int | None:
        """The frame with this stamp."""
        position = int(np.searchsorted(self.stamps, -1 if stamp is None else stamp))
        return position if position < len(self.stamps) and self.stamps[position] == stamp else None


class _Decoder:
    """An open file and which frame comes next out of it."""

    def __init__(self, path: Path, index: _Index, threads: int) -> None:
        self.path = path
        self.index = index
        self.threads = threads
        self._next = 0
        self._pictures: Iterator[av.VideoFrame] = iter(())
        self._open()

    def read(self, position: int) -> "DecodedFrame":
        if position != self._next:
            key = self.index.key_before(position)
            if not key <= self._next <= position:
                self._seek(key)
        for found, picture in self.pictures():
            if found == position and not picture.is_corrupt:
                return DecodedFrame(picture, self.tagged_rotation)
            if found >= position:
                break
        raise UserError(
            f"{self.path}: frame {position} does not decode, the file is damaged there: copy it again, or exclude the "
            "frame."
        )

    def pictures(self) -> Iterator[tuple[int, av.VideoFrame]]:
        """All frames that decode from here on, with their positions."""
        for picture in self._pictures:
            position = self.index.position(picture.pts) if self.index.timed else self._next
            if position is not None:
                self._next = position + 1
                yield position, picture
        self._next = len(self.index.stamps)

    @property
    def pixel_aspect(self) -> Fraction:
        """As the file says it, before rotation; 1 where it does not."""
        return Fraction(self._stream.sample_aspect_ratio or 1)

    def close(self) -> None:
        self._container.close()

    def _open(self) -> None:
        self._container, self._stream = _open(self.path)
        self._stream.codec_context.thread_count = self.threads
        self._stream.codec_context.thread_type = "AUTO"
        tags = {name.lower(): value for name, value in self._stream.metadata.items()}
        self.tagged_rotation = int(tags["rotate"]) if tags.get("rotate", "").lstrip("-").isdigit() else 0
        self._next = 0
        self._pictures = self._decode()

    def _seek(self, key: int) -> None:
        """Go to a key; where it turns out to be none, to the one before, and at last to the beginning."""
        for start in (key, self.index.key_before(max(key - 1, 0))):
            if start == 0:
                break
            try:
                self._container.seek(int(self.index.stamps[start]), stream=self._stream)
            except av.FFmpegError:
                break
            self._pictures = self._decode()
            for found, picture in self.pictures():
                if found == start and picture.pict_type not in _DEPENDENT:
                    self._next = found
                    self._pictures = itertools.chain([picture], self._pictures)
                    return
                if found >= start:
                    break
        self.close()
        self._open()

    def _decode(self) -> Iterator[av.VideoFrame]:
        with contextlib.suppress(av.FFmpegError):  # the file ends in the middle of a packet
            for packet in self._container.demux(self._stream):
                if not packet.is_corrupt:  # no frame of the index, and its error would cost good ones on other threads
                    yield from _frames_of(packet)


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """A decoded frame."""

    frame: av.VideoFrame
    tagged_rotation: int

    def rgb(self) -> np.ndarray:
        """As a player shows it, uint8, H W 3: by the file's colour matrix and range, or by size if it does not say."""
        frame = self.frame
        matrix = None if frame.format.is_rgb else self._unsaid_matrix
        # No flags: FFmpeg's usual conversion is the fast one, and the one that frames extracted elsewhere went through.
        converted = _converter.reformat(
            frame, format="rgb24", src_colorspace=matrix, dst_color_range=ColorRange.JPEG, threads=1
        )
        pixels = converted.to_ndarray()
        quarters, mirrored = _orientation(frame, self.tagged_rotation)
        if quarters:
            pixels = np.rot90(pixels, quarters)
        if mirrored:
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(pixels)

    def planes(self) -> "YuvPlanes | None":
        """The same before it is turned into RGB; None where it is of another kind than most, or has to be rotated."""
        frame = self.frame
        # Of two fields, each has colours of its own.
        if frame.format.name not in _PLAIN or frame.interlaced_frame or frame.width % 2 or frame.height % 2:
            return None
        if _orientation(frame, self.tagged_rotation) != (0, False) or frame.planes[0].line_size < 0:  # upside down
            return None
        matrix = self._unsaid_matrix or frame.colorspace
        return YuvPlanes(frame, _colours(frame.format.name, matrix, frame.color_range, frame.width % 64))

    @property
    def _unsaid_matrix(self) -> Colorspace | None:
        """The colour matrix where the file does not say it: that of the frame's size."""
        if self.frame.colorspace not in _UNSAID:
            return None
        high_definition = self.frame.width >= 1280 or self.frame.height > 576
        return Colorspace.ITU709 if high_definition else Colorspace.ITU601


@dataclass(frozen=True, slots=True)
class YuvPlanes:
    """A decoded frame as the planes that `suture.data.yuv` speaks of: half the bytes of RGB."""

    frame: av.VideoFrame
    colours: YuvToRgb

    @property
    def shape(self) -> tuple[int, int]:
        """Of the array that takes all of its planes."""
        return self.frame.height * 3 // 2, self.frame.width

    def copy_to(self, memory: np.ndarray) -> None:
        """All planes, below each other, into an array of this shape."""
        sources: Any = self.frame.planes
        for source, target in zip(sources, split_planes(memory), strict=True):
            # Whole planes, for which Python's lock is not needed; their lines may be longer than they are wide.
            lines = np.frombuffer(source, np.uint8).reshape(source.height, source.line_size)
            np.copyto(target, lines[:, : source.width])


@lru_cache(maxsize=64)
def _colours(kind: str, matrix: int, color_range: int, beyond: int) -> YuvToRgb:
    """By what `DecodedFrame.rgb` turns planes into RGB, as far as that is linear.

    The textbook's matrix is not enough: FFmpeg cuts off after each product, and not alike on all processors, nor for
    widths that leave so many pixels `beyond` a multiple of 64. It is a level or two, but masks shall not depend on
    where frames become RGB.
    """
    frame = av.VideoFrame(_PROBE + beyond, _PROBE, kind)
    frame.colorspace, frame.color_range = matrix, color_range
    generator = np.random.default_rng(0)
    targets: Any = frame.planes
    for plane, (low, high) in zip(targets, [(70, 180), (100, 156), (100, 156)], strict=True):  # no channel overflows
        plane.update(generator.integers(low, high, plane.buffer_size, np.uint8).tobytes())
    given = np.insert(sample_planes(frame.to_ndarray()).reshape(-1, 3), 3, 1, axis=1).astype(float)
    found, *_ = np.linalg.lstsq(given, DecodedFrame(frame, 0).rgb().reshape(-1, 3).astype(float), rcond=None)
    return YuvToRgb(*map(tuple, found.T.round(6).tolist()))  # no digits that differ from call to call


class _Idle:
    """A few open decoders that nobody uses right now, so that reading goes on where it was.

    An open decoder of large video holds tens of megabytes; with a hundred videos not all of them can stay open.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._decoders: list[_Decoder] = []
        self._inherited: list[_Decoder] = []
        os.register_at_fork(after_in_child=self._start_anew)

    def take(self, index: _Index) -> _Decoder | None:
        with self._lock:
            found = next((decoder for decoder in self._decoders if decoder.index is index), None)
            if found is not None:
                self._decoders.remove(found)
            return found

    def put(self, decoder: _Decoder) -> None:
        with self._lock:
            self._decoders.append(decoder)
            surplus = self._decoders.pop(0) if len(self._decoders) > self.most else None
        if surplus is not None:
            surplus.close()

    def _start_anew(self) -> None:
        # A fork shares its parent's place in the open files: using them would disturb both, closing them may hang.
        self._inherited += self._decoders
        self._lock, self._decoders = threading.Lock(), []


_idle = _Idle(most=4)


def _frames_of(packet: av.Packet) -> list[av.VideoFrame]:
    try:
        return packet.decode()
    except av.FFmpegError:
        return []  # the frame is missing then, and whoever asks for it is told


# A title in an unknown encoding is no reason to refuse a video; from PyAV 19 on it never is.
_LENIENT: dict[str, Any] = {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}


def _open(path: Path) -> tuple[av.container.InputContainer, av.video.VideoStream]:
    if not path.is_file():
        raise UserError(f"{path} is not a file: expected a video.")
    try:
        container = av.open(f"file:{path}", **_LENIENT)  # else what stands before a colon in 12:30.mp4 is a protocol
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: permission denied.") from error
    except (av.FFmpegError, OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a video that can be read ({getattr(error, 'strerror', None) or error}): "
            "it is cut off, damaged or no video at all; copy or export it again."
        ) from error
    streams = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not streams:
        container.close()
        raise UserError(f"{path} holds no video, only sound or data: expected a video file.")
    stream = streams[0]
    if stream.codec_context is None:
        container.close()
        raise UserError(f"{path} is of a codec that cannot be decoded here: convert it to H.264.")
    if stream.width * stream.height > MAX_PIXELS:
        container.close()
        raise UserError(f"{path} claims {stream.width}×{stream.height} pixels: the file is damaged.")
    return container, stream


def _read_index(path: Path) -> _Index:
    container, stream = _open(path)
    # What the header says is asked for first: a closed file answers no questions.
    kind, reorders = container.format.name, stream.codec_context.has_b_frames
    base, rate = float(stream.time_base or 1), float(stream.average_rate or 25)
    promised, seconds = stream.frames, (container.duration or 0) / av.time_base
    edited = (stream.duration or 0) * base
    own = _track_seconds(stream) if "matroska" in kind else 0.0
    packets = 0
    shown: list[int | None] = []
    sent: list[int | None] = []
    keys: list[bool] = []
    with container, contextlib.suppress(av.FFmpegError):  # a file cut off in the middle: what is there counts
        for packet in container.demux(stream):
            if packet.size and not packet.is_corrupt:
                packets += 1
                if not packet.is_discard:
                    shown.append(packet.pts)
                    sent.append(packet.dts)
                    keys.append(packet.is_keyframe)
    if not shown:
        raise UserError(f"{path} holds no frames: the file is cut off or its recording was never finished.")
    clocked = kind in ("mpeg", "mpegts")
    if clocked and _are_fields(shown, sent, 1 / (rate * base)):
        stamped = [stamp is not None for stamp in shown]
        keys = list(itertools.compress(keys, stamped))
        shown, sent = list(itertools.compress(shown, stamped)), list(itertools.compress(sent, stamped))
    # AVI has no presentation stamps: what FFmpeg makes up for it is the coding order where a codec reorders its frames.
    in_order = None in shown or (np.diff(np.array(shown, np.int64)) > 0).all()
    made_up = kind == "avi" and reorders and in_order
    # A clock that goes back is that of another recording, whose bytes were put behind those of the first.
    joined = clocked and (np.diff([stamp for stamp in sent if stamp is not None]) < 0).any()
    timed = None not in shown and len(set(shown)) == len(shown) and not made_up and not joined
    if not timed and None not in sent and len(set(sent)) == len(sent) and not joined:
        shown = sent
    elif not timed:
        shown, base = list(range(len(sent))), 1 / rate
    stamps = np.array(shown, np.int64)
    order = np.argsort(stamps)
    keyed = np.array(keys)[order] & timed
    keyed[0] = True
    begins = int(stamps.min()) if clocked else 0
    if "mp4" in kind:
        # Frames behind the end that an edit list sets are there, but not listed.
        unlisted = round((edited - float(np.ptp(stamps)) * base) * rate) - 1 if edited else promised
        missing = max(0, min(promised - packets, unlisted))
    else:  # AVI counts empty frames too, others only say how long they last, which sound may a little longer
        end, seconds = max(float((stamps.max() - begins) * base), len(stamps) / rate), own or promised / rate or seconds
        # What is said of the video alone is exact, but for the last frame, which may be shown longer than others.
        missing = round((seconds - end) * rate) if seconds > end + (2 if own else max(2, 0.05 * end)) else 0
    return _Index(stamps[order], np.flatnonzero(keyed), timed, begins, base, rate, missing)


def _are_fields(shown: Sequence[int | None], sent: Sequence[int | None], period: float) -> bool:
    """Whether packets without a time stamp hold the second field of a frame, as 1080i recorders write H.264: they take
    no time of their own, where frames would."""
    steps = [
        after - before
        for before, here, after in zip(sent, shown[1:], sent[2:], strict=False)
        if here is None and before is not None and after is not None
    ]
    return bool(steps) and float(np.median(steps)) < 1.5 * period


def _track_seconds(stream: av.video.VideoStream) -> float:
    """How long the video alone lasts, without the sound, as FFmpeg and others write it into Matroska; 0: unsaid."""
    said = re.fullmatch(r"(\d+):(\d+):(\d+\.\d+)", stream.metadata.get("DURATION", ""))
    return 3600 * int(said[1]) + 60 * int(said[2]) + float(said[3]) if said else 0.0


def _orientation(picture: av.VideoFrame, tagged: int) -> tuple[int, bool]:
    """How the decoded picture must be turned to be shown: quarter turns anticlockwise, and then mirrored or not."""
    try:
        side_data: Any = picture.side_data
        matrix = np.frombuffer(bytes(side_data["DISPLAYMATRIX"]), np.int32)
    except (KeyError, ValueError):  # there is none, or side data of a kind that PyAV does not know
        return round((picture.rotation or -tagged) / 90) % 4, False
    a, b, _, c, d = matrix[:5].astype(float)
    mirrored = a * d - b * c < 0
    if mirrored:
        a, c = -a, -c
    return round(np.degrees(np.arctan2(-b, a)) / 90) % 4, mirrored


class _Converter(threading.local):
    """Of the thread that asks: one converts one frame at a time."""

    def __init__(self) -> None:
        # Not the one that PyAV may share between frames: other code's threads in it are lost in a fork, and waited for.
        self.reformat = VideoReformatter().reformat


_converter = _Converter()
