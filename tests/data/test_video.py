"""Video files, written here with real encoders."""

import os
import pickle
import re
import signal
import struct
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace

from suture.core.errors import UserError
from suture.data.video import VIDEO_SUFFIXES, VideoFile

FRAMES = 40


@cache
def picture(index: int, width: int = 96, height: int = 64) -> np.ndarray:
    """A smooth picture that no other index has, with a bright corner that tells how it is turned."""
    rows, columns = np.mgrid[:height, :width]
    waves = [np.sin((columns + rows * k) / 17 + index * (0.3 + k)) * 60 + 110 for k in range(3)]
    pixels = np.stack(waves, -1)
    pixels[:16, :24] = 240
    return pixels.astype(np.uint8)


def write(
    path: Path,
    codec: str = "libx264",
    *,
    frames: int = FRAMES,
    b_frames: int = 3,
    stamps: Sequence[int] | None = None,
    rotation: int | None = None,
    pixel_format: str = "yuv420p",
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
) -> Path:
    """Encode `frames` pictures; `stamps` in milliseconds make a variable frame rate."""
    with av.open(str(path), "w", options=container_options or {}) as container:
        stream: Any = container.add_stream(codec, rate=25, options=options or {})
        stream.width, stream.height, stream.pix_fmt = 96, 64, pixel_format
        stream.bit_rate, stream.gop_size, stream.codec_context.max_b_frames = 4_000_000, 12, b_frames
        if stamps is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation is not None:
            stream.set_display_rotation(rotation, False)
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(index), format="rgb24")
            frame.pts = index if stamps is None else stamps[index]
            frame.time_base = Fraction(1, 25 if stamps is None else 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def closeness(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found.astype(int) - expected).mean())


KINDS: dict[str, dict[str, Any]] = {
    "b-frames.mp4": {},
    "b-frames.mkv": {},
    "b-frames.mov": {},
    "h264.avi": {},  # AVI cannot say when a frame is shown
    "open-gop.mp4": {"options": {"x264-params": "open-gop=1:keyint=12:bframes=3:b-adapt=0"}},
    "intra-refresh.mp4": {"b_frames": 0, "options": {"x264-params": "intra-refresh=1:keyint=12"}},
    "b-frames.avi": {"codec": "mpeg4", "b_frames": 2},
    "plain.avi": {"codec": "mpeg4", "b_frames": 0},
    "mpeg2.avi": {"codec": "mpeg2video", "b_frames": 2},
    "motion-jpeg.avi": {"codec": "mjpeg", "pixel_format": "yuvj420p", "b_frames": 0},
    "vp9.webm": {"codec": "libvpx-vp9", "b_frames": 0, "options": {"deadline": "realtime"}},
    "mpeg2.mpg": {"codec": "mpeg2video", "b_frames": 2},
    "mpeg1.mpeg": {"codec": "mpeg1video", "b_frames": 2},
    "b-frames.ts": {},
    "open-gop.m2ts": {"options": {"x264-params": "open-gop=1:keyint=12:bframes=3:b-adapt=0"}},
    "mpeg2.mts": {"codec": "mpeg2video", "b_frames": 2},
    "plain.wmv": {"codec": "wmv2", "b_frames": 0},
    "variable.mp4": {"stamps": np.cumsum(np.random.default_rng(1).integers(5, 90, FRAMES)).tolist()},
    "variable.mkv": {"stamps": np.cumsum(np.random.default_rng(2).integers(5, 90, FRAMES)).tolist()},
}


@pytest.mark.parametrize("name", KINDS)
def test_random_access_gives_the_frames_of_the_sequence(tmp_path: Path, name: str) -> None:
    assert Path(name).suffix in VIDEO_SUFFIXES
    video = VideoFile(write(tmp_path / name, **KINDS[name]))
    in_order = list(video.frames())
    assert len(video) == len(in_order) == FRAMES
    assert video.size == (96, 64)
    expected = np.stack([picture(index) for index in range(FRAMES)])[:, ::4, ::4].astype(int)
    for index, pixels in enumerate(in_order):
        assert np.abs(expected - pixels[::4, ::4]).mean((1, 2, 3)).argmin() == index
    for index in np.random.default_rng(0).permutation(FRAMES).tolist():
        np.testing.assert_array_equal(video.read(index), in_order[index])


def flat_field(frame: int, bottom: bool) -> bytes:
    """Every second line of a flat picture of 96×64 as H.264, which libx264 cannot write: uncompressed blocks."""

    def unit(kind: int, bits: str, samples: bytes = b"") -> bytes:
        bits += "" if samples else "1"
        content = int(bits.ljust(-len(bits) // 8 * -8, "0"), 2).to_bytes(-(-len(bits) // 8)) + samples
        return b"\0\0\0\1" + bytes([kind]) + re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", content)

    def number(value: int) -> str:
        return f"{value + 1:b}".zfill(2 * (value + 1).bit_length() - 1)

    begins = frame % 12 == 0 and not bottom
    head = number(0) + number(7) + number(0) + f"{frame % 12:04b}1{bottom:d}"
    head += f"{number(frame // 12 % 2)}001" if begins else "01"
    block = bytes([40 + 4 * frame] * 256 + [128] * 128)
    blocks = block + 11 * (b"\x0d\0" + block) + b"\x80"
    size = number(0) + number(0) + number(2) + number(1) + "0" + number(5) + number(1)
    parameters = unit(0x67, f"{77:08b}{0:08b}{30:08b}{size}0010100001{1:032b}{50:032b}10000")
    pictures = unit(0x68, number(0) + number(0) + "00" + 3 * number(0) + "000" + "111" + "000")
    access = unit(0x09, "000")
    return (
        access + (parameters + pictures if begins else b"") + unit(0x65 if begins else 0x61, head + number(25), blocks)
    )


@pytest.mark.parametrize("name", ["fields.ts", "fields.m2ts", "fields.mp4", "fields.mkv"])
def test_two_fields_are_one_frame(tmp_path: Path, name: str) -> None:
    """Recorders of 1080i write them one after the other; transport streams are read field by field."""
    fields = [flat_field(frame, False) + flat_field(frame, True) for frame in range(FRAMES)]
    with (
        av.open(BytesIO(b"".join(fields)), format="h264") as plain,
        av.open(str(tmp_path / name), "w") as container,
    ):
        stream = container.add_stream_from_template(plain.streams.video[0])
        for index, field in enumerate(fields):
            packet = av.Packet(field)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 25), index % 12 == 0
            packet.pts = packet.dts = index
            container.mux(packet)
    video = VideoFile(tmp_path / name)
    assert len(video) == FRAMES
    assert video.fps == pytest.approx(25)
    levels = [int(pixels[..., 1].mean()) for pixels in video.frames()]
    assert levels == sorted(set(levels))
    for index in np.random.default_rng(0).permutation(FRAMES).tolist():
        assert int(video.read(index)[..., 1].mean()) == levels[index]


@pytest.mark.parametrize("suffix", [".ts", ".mpg"])
@pytest.mark.parametrize("delay", ["0", "0.1", "0.413"])
def test_recordings_that_were_joined_as_bytes(tmp_path: Path, suffix: str, delay: str) -> None:
    """As by `cat`: the clock goes back, where the second begins."""
    parts = [
        write(tmp_path / f"{number}{suffix}", "mpeg2video", b_frames=2, container_options=options)
        for number, options in enumerate(({}, {"output_ts_offset": delay}))
    ]
    path = tmp_path / f"joined{suffix}"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    video, frames = VideoFile(path), [frame for part in parts for frame in VideoFile(part).frames()]
    assert len(frames) - 1 <= len(video) <= len(frames)  # FFmpeg takes the one before the joint for damaged
    assert video.fps == pytest.approx(25)
    found = list(video.frames())
    for index in (0, 1, 20):
        np.testing.assert_array_equal(found[index], frames[index])
        np.testing.assert_array_equal(found[-1 - index], frames[-1 - index])
    for index in np.random.default_rng(0).permutation(len(video)).tolist()[:20]:
        np.testing.assert_array_equal(video.read(index), found[index])


def test_a_name_with_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a time of day: to FFmpeg it looks like the address of a protocol."""
    write(tmp_path / "12:30.mp4")
    monkeypatch.chdir(tmp_path)
    assert len(VideoFile(Path("12:30.mp4"))) == FRAMES


def test_times_and_rate(tmp_path: Path) -> None:
    stamps = KINDS["variable.mp4"]["stamps"]
    video = VideoFile(write(tmp_path / "a.mp4", stamps=stamps))
    np.testing.assert_allclose(video.times, np.array(stamps) / 1000, atol=1e-9)
    assert video.fps == pytest.approx((FRAMES - 1) / (stamps[-1] - stamps[0]) * 1000)
    assert VideoFile(write(tmp_path / "b.mp4")).fps == pytest.approx(25)
    assert VideoFile(write(tmp_path / "c.mp4", frames=1)).fps == pytest.approx(25)


@pytest.mark.parametrize("name", ["b-frames.ts", "open-gop.m2ts", "mpeg2.mpg"])
def test_times_begin_at_zero_where_a_file_has_a_clock(tmp_path: Path, name: str) -> None:
    times = VideoFile(write(tmp_path / name, **KINDS[name])).times
    np.testing.assert_allclose(times, np.arange(FRAMES) / 25, atol=1e-3)


@pytest.mark.parametrize("degrees", [0, 90, 180, -90])
def test_rotated_frames_are_upright(tmp_path: Path, degrees: int) -> None:
    video = VideoFile(write(tmp_path / "a.mp4", frames=2, rotation=degrees))
    expected = np.rot90(picture(1), degrees // 90)
    assert video.size == (expected.shape[1], expected.shape[0])
    assert closeness(video.read(1), expected) < 4


def test_the_pixels_of_anamorphic_video_are_not_square(tmp_path: Path) -> None:
    options = {"x264-params": "sar=64/45"}
    assert VideoFile(write(tmp_path / "a.mp4", frames=2, options=options)).pixel_aspect == Fraction(64, 45)
    turned = VideoFile(write(tmp_path / "b.mp4", frames=2, options=options, rotation=90))
    assert turned.pixel_aspect == Fraction(45, 64)
    for suffix in (".mp4", ".mkv", ".avi", ".ts"):
        assert VideoFile(write(tmp_path / f"c{suffix}", frames=2)).pixel_aspect == 1


def write_flat(path: Path, yuv: tuple[int, int, int], size: tuple[int, int], matrix: int | None, full: bool) -> Path:
    """A lossless file of one colour, given as it is stored."""
    width, height = size
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"qp": "0", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        frame = av.VideoFrame(width, height, "yuv420p")
        for plane, value in zip(frame.planes, yuv, strict=True):
            plane.update(bytes([value]) * plane.buffer_size)
        frame.color_range = stream.codec_context.color_range = ColorRange.JPEG if full else ColorRange.MPEG
        if matrix is not None:
            frame.colorspace = stream.codec_context.colorspace = matrix
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def textbook_rgb(yuv: tuple[int, int, int], red: float, blue: float, full: bool) -> np.ndarray:
    """RGB by the luma weights of red and blue."""
    offset, scale = (0, (255, 255)) if full else (16, (219, 224))
    y, u, v = (yuv[0] - offset) / scale[0], (yuv[1] - 128) / scale[1], (yuv[2] - 128) / scale[1]
    r, b = y + 2 * (1 - red) * v, y + 2 * (1 - blue) * u
    return np.clip(np.array([r, (y - red * r - blue * b) / (1 - red - blue), b]) * 255, 0, 255)


BT601, BT709 = (0.299, 0.114), (0.2126, 0.0722)
SMALL, LARGE = (64, 48), (1280, 720)


@pytest.mark.parametrize("full", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize(
    ("stated", "size", "weights"),
    [
        (int(Colorspace.ITU601), LARGE, BT601),
        (int(Colorspace.ITU709), SMALL, BT709),
        (None, SMALL, BT601),
        (None, LARGE, BT709),
    ],
    ids=["601", "709", "unspecified-small", "unspecified-large"],
)
def test_colour_matrix_and_range(
    tmp_path: Path, stated: int | None, size: tuple[int, int], weights: tuple[float, float], full: bool
) -> None:
    for number, yuv in enumerate([(120, 90, 190), (200, 140, 110), (60, 128, 128), (235, 128, 128), (16, 128, 128)]):
        video = VideoFile(write_flat(tmp_path / f"{number}.mp4", yuv, size, stated, full))
        assert video.size == size
        assert np.abs(video.read(0).reshape(-1, 3) - textbook_rgb(yuv, *weights, full)).max() < 2


def test_the_reserved_colour_matrix_is_read_as_none(tmp_path: Path) -> None:
    """No encoder writes it, so it is put into a file that says another one."""
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        context = stream.codec_context
        context.color_primaries, context.color_trc, context.colorspace = 5, 1, int(Colorspace.ITU601)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(0), format="rgb24")))
        container.mux(stream.encode(None))
    expected = VideoFile(path).read(0)
    says = b"colrnclx\0\5\0\1\0"
    before, after = path.read_bytes().split(says + b"\5")
    other = tmp_path / "b.mp4"
    other.write_bytes(before + says + b"\3" + after)
    frame = VideoFile(other).decode(0)
    assert frame.frame.colorspace == 3
    np.testing.assert_array_equal(frame.rgb(), expected)


def test_pickled_and_forked_readers_do_not_disturb_each_other(tmp_path: Path) -> None:
    video = VideoFile(write(tmp_path / "a.mp4"))
    expected = list(video.frames())
    video.read(3)
    copy = pickle.loads(pickle.dumps(video))
    np.testing.assert_array_equal(copy.read(4), expected[4])
    child = os.fork()
    if child == 0:
        same = all(np.array_equal(video.read(i), expected[i]) for i in range(4, 20))
        os._exit(0 if same else 1)
    for index in range(4, 20):
        np.testing.assert_array_equal(video.read(index), expected[index])
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork_reads_although_its_parent_converted_frames_on_many_threads(tmp_path: Path) -> None:
    """PyAV 19 keeps its converter for the next frame, with threads that a fork waits for but does not have."""
    video = VideoFile(write(tmp_path / "a.mp4"))
    av.VideoFrame.from_ndarray(picture(0), format="rgb24").reformat(format="yuv420p", threads=2)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        video.read(0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "name", ["b-frames.mkv", "b-frames.avi", "vp9.webm", "faststart.mp4", "mpeg2.mpg", "b-frames.ts"]
)
def test_a_file_cut_in_the_middle_gives_what_is_there(tmp_path: Path, name: str) -> None:
    kind = KINDS.get(name, {"container_options": {"movflags": "faststart"}})
    path = write(tmp_path / name, **kind)
    whole = list(VideoFile(path).frames())
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 7 // 10])
    video = VideoFile(path)
    assert 5 < len(video) < FRAMES
    for index in range(len(video) - 4):  # the last ones may refer to what was cut off
        np.testing.assert_array_equal(video.read(index), whole[index])


@pytest.mark.parametrize(("first", "count"), [(0, 25), (12, 20), (17, 10), (1, 38)])
def test_what_an_edit_list_cuts_out_is_not_missed(tmp_path: Path, first: int, count: int) -> None:
    """As telephones and players trim a video, without coding it anew."""
    path = write(tmp_path / "a.mp4")
    frames = list(VideoFile(path).frames())
    content = bytearray(path.read_bytes())
    place = content.index(b"elst") + 12
    _, begins = struct.unpack_from(">Ii", content, place)
    struct.pack_into(">Ii", content, place, count * 40, begins + first * 512)  # in milliseconds, and in 1/12800 s
    path.write_bytes(content)
    video = VideoFile(path)
    assert (len(video), video.missing) == (count, 0)
    for index in np.random.default_rng(0).permutation(count).tolist():
        np.testing.assert_array_equal(video.read(index), frames[first + index])


def test_a_file_cut_in_the_middle_gives_the_same_frames_on_many_threads(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", container_options={"movflags": "faststart"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 7 // 10])
    one, many = VideoFile(path), VideoFile(path, threads=4)
    assert len(one) + one.missing == FRAMES
    for expected, found in zip(one.frames(), many.frames(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_frame_that_does_not_decode_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", container_options={"movflags": "faststart"})
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 6000] = bytes(6000)
    path.write_bytes(data)
    video = VideoFile(path)
    failed = {}
    for index in range(len(video)):
        try:
            video.read(index)
        except UserError as error:
            failed[index] = str(error)
    assert 0 < len(failed) < len(video)
    assert all(message.startswith(f"{path}: frame {index} does not decode") for index, message in failed.items())
    with pytest.raises(UserError, match=f"frame {min(failed)} does not decode"):
        list(video.frames())


def test_no_such_frame(tmp_path: Path) -> None:
    video = VideoFile(write(tmp_path / "a.mp4", frames=3))
    for index in (-1, 3):
        with pytest.raises(UserError, match="has 3 frames"):
            video.read(index)


def test_files_without_video_are_refused(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.mp4" for name in ("text", "empty", "cut", "folder", "pipe", "loop", "sound")}
    paths["text"].write_text("no video at all " * 50)
    paths["empty"].touch()
    write(paths["cut"])
    paths["cut"].write_bytes(paths["cut"].read_bytes()[:2000])  # without its index
    paths["folder"].mkdir()
    os.mkfifo(paths["pipe"])
    paths["loop"].symlink_to(paths["loop"])
    with av.open(str(paths["sound"]), "w") as container:
        stream: Any = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with av.open(str(tmp_path / "a.avi"), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        container.start_encoding()
    for path in (*paths.values(), tmp_path / "a.avi", tmp_path / "missing.mp4"):
        with pytest.raises(UserError, match=str(path)):
            len(VideoFile(path))
