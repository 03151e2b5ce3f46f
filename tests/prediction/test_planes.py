"""Frames that travel to a GPU as their file has them: they become what they would on a CPU."""

import csv
import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
import torch
from av.video.reformatter import ColorRange
from predict_files import picture, write_video
from rich.console import Console

from suture.data.overlay import PLAIN_STYLE
from suture.data.video import DecodedFrame, VideoFile, YuvPlanes
from suture.data.yuv import sample_planes, yuv_to_rgb
from suture.prediction.fast.planes_to_rgb import planes_to_rgb
from suture.prediction.find_clips import find_clips
from suture.prediction.flow_agreement import Thumbnail
from suture.prediction.input_clip import fill_batch
from suture.prediction.mask_files import read_written_mask
from suture.prediction.predict import PredictionSummary, predict
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import Predictor

BT709, UNSAID, BT601 = 1, 2, 5
ALIKE = 0.97
"""The share of a mask's pixels: a network of random weights decides otherwise where colours differ by one level."""


def go(predictor: Predictor, given: Path, out: Path, **settings: Any) -> PredictionSummary:
    return predict(
        predictor, [given], out, PredictionSettings(**settings), batch=4, console=Console(file=io.StringIO())
    )


def write_colours(path: Path, size: tuple[int, int], kind: str, matrix: int = UNSAID, full: bool = False) -> Path:
    """A lossless file of one frame, with all brightnesses beside each other and colours that change softly."""
    codec = {"yuvj420p": "mjpeg", "rgb24": "ffv1"}.get(kind, "libx264")
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=25, options={"qp": "0"} if codec == "libx264" else {})
        stream.width, stream.height, stream.pix_fmt = *size, "bgr0" if codec == "ffv1" else kind
        frame = av.VideoFrame(*size, kind)
        generator = np.random.default_rng(0)
        targets: Any = frame.planes
        for number, plane in enumerate(targets):
            lines = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
            soft = cv2.resize(generator.integers(40, 216, (6, 7), np.uint8), lines.shape[::-1])
            lines[:] = generator.integers(0, 256, lines.shape) if number == 0 else soft
        frame.color_range = stream.codec_context.color_range = ColorRange.JPEG if full else ColorRange.MPEG
        frame.colorspace = stream.codec_context.colorspace = matrix
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def planes_of(frame: DecodedFrame) -> tuple[YuvPlanes, np.ndarray]:
    found = frame.planes()
    assert found is not None
    return found, fill_batch(np.empty((1, *found.shape), np.uint8), [found])[0]


@pytest.mark.parametrize("size", [(208, 90), (130, 66), (1280, 720), (2, 2)])
@pytest.mark.parametrize("matrix", [BT709, BT601, UNSAID])
@pytest.mark.parametrize("full", [False, True])
def test_planes_become_what_ffmpeg_makes_of_them(
    tmp_path: Path, size: tuple[int, int], matrix: int, full: bool
) -> None:
    frame = VideoFile(write_colours(tmp_path / "a.mp4", size, "yuv420p", matrix, full)).decode(0)
    planes, memory = planes_of(frame)
    np.testing.assert_array_equal(memory, frame.frame.to_ndarray())
    expected = frame.rgb().astype(int)
    several = planes_to_rgb(torch.from_numpy(np.stack([memory] * 5)), planes.colours)
    for found in (yuv_to_rgb(sample_planes(memory), planes.colours), several[0].numpy(), several[4].numpy()):
        assert found.shape == expected.shape
        assert found.dtype == np.uint8
        difference = np.abs(found - expected)
        assert difference.max() <= 2
        assert difference.mean() < 0.7


def test_the_flow_sees_the_same(tmp_path: Path) -> None:
    for size in ((48, 40), (200, 160), (1280, 720)):
        frame = VideoFile(write_video(tmp_path / "a.mp4", 1, size)).decode(0)
        planes, memory = planes_of(frame)
        mask = np.zeros(size[::-1], np.uint8)
        small, expected = Thumbnail.of(memory, mask, planes.colours), Thumbnail.of(frame.rgb(), mask)
        assert small.gray.shape == expected.gray.shape
        np.testing.assert_allclose(small.gray.astype(int), expected.gray.astype(int), atol=2)


OTHER = ["yuv422p", "yuv444p", "yuv420p10le", "rgb24", "odd", "rotated", "mirrored", "interlaced"]


@pytest.mark.parametrize("kind", OTHER)
def test_other_kinds_become_rgb_before(cpu: Predictor, gpu: Predictor, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"case.{'mkv' if kind in ('rgb24', 'odd') else 'mp4'}"
    turns = {"rotated": (90, False), "mirrored": (0, True)}
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("ffv1" if path.suffix == ".mkv" else "libx264", rate=10)
        stream.width, stream.height = (49, 41) if kind == "odd" else (48, 40)
        stream.pix_fmt = {"rgb24": "bgr0"}.get(kind, kind if kind.startswith("yuv") else "yuv420p")
        if kind == "interlaced":
            stream.codec_context.options = {"x264-params": "interlaced=1"}
        if kind in turns:
            stream.set_display_rotation(*turns[kind])
        for index in range(6):
            frame = av.VideoFrame.from_ndarray(picture(index, stream.width, stream.height), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    (clip,) = find_clips([path])
    assert all(isinstance(shown.pixels, np.ndarray) for shown in clip.frames(range(6), planes=True))
    for name, predictor in (("cpu", cpu), ("gpu", gpu)):
        go(predictor, path, tmp_path / name)
    assert_alike(tmp_path, "case", 6, 0.999)


def assert_alike(root: Path, name: str, count: int, share: float = ALIKE, flow: float = 0.001) -> None:
    """What both ways have written."""
    both = [root / way / name for way in ("cpu", "gpu")]
    masks = sorted(path.name for path in (both[0] / "masks").iterdir())
    assert len(masks) == count
    for each in masks:
        one, other = (read_written_mask(way / "masks" / each) for way in both)
        assert one is not None
        assert (one == other).mean() > share
    tables = [list(csv.DictReader((way / "frames.csv").read_text().splitlines())) for way in both]
    assert VideoFile(both[0] / "overlay.mp4").size == VideoFile(both[1] / "overlay.mp4").size
    for one, other in zip(*tables, strict=True):
        assert one["problem"] == other["problem"]
        for column in ("confidence", "flow_agreement"):
            if one[column]:
                assert float(one[column]) == pytest.approx(float(other[column]), abs=flow)


@pytest.mark.parametrize("size", [(48, 40), (120, 90)])
def test_files_are_those_of_the_way_over_rgb(
    cpu: Predictor, gpu: Predictor, tmp_path: Path, size: tuple[int, int]
) -> None:
    path = write_video(tmp_path / "case.mp4", 12, size)
    for name, predictor in (("cpu", cpu), ("gpu", gpu)):
        go(predictor, path, tmp_path / name)
    assert_alike(tmp_path, "case", 12, flow=0.02)


@pytest.mark.parametrize("settings", [{}, {"smooth": 0.5}, {"masks": "video"}])
def test_no_core_turns_the_frames_into_rgb(
    gpu: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    path = write_video(tmp_path / "case.mp4", 9)
    planes_of(VideoFile(path).decode(0))  # that FFmpeg's way is asked for once
    monkeypatch.delattr(DecodedFrame, "rgb")
    assert go(gpu, path, tmp_path / "out", view=None, **settings).frames == 9


def test_what_a_file_holds_may_change(cpu: Predictor, gpu: Predictor, tmp_path: Path) -> None:
    """Kind, colours and size, between frames of one batch."""
    path = tmp_path / "case.mkv"
    parts = [("yuvj420p", (48, 40)), ("yuvj422p", (48, 40)), ("yuvj420p", (60, 50)), ("yuvj420p", (48, 40))]
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 48, 40, "yuvj420p"
        for part, (kind, size) in enumerate(parts):
            encoder: Any = av.CodecContext.create("mjpeg", "w")
            encoder.width, encoder.height, encoder.pix_fmt = *size, kind
            encoder.time_base, encoder.framerate = Fraction(1, 10), Fraction(10)
            for index in range(3 * part, 3 * part + 3):
                frame = av.VideoFrame.from_ndarray(picture(index, *size), format="rgb24")
                frame.pts, frame.time_base = index, Fraction(1, 10)
                for packet in encoder.encode(frame):
                    packet.stream, packet.time_base = stream, Fraction(1, 10)
                    container.mux(packet)
    (clip,) = find_clips([path])
    kinds = [isinstance(shown.pixels, YuvPlanes) for shown in clip.frames(range(12), planes=True)]
    assert kinds == [True] * 3 + [False] * 3 + [True] * 6
    for name, predictor in (("cpu", cpu), ("gpu", gpu)):
        summary = go(predictor, path, tmp_path / name)
        assert summary.frames == 9
        assert len(summary.problems) == 3
        assert "60×50 pixels, expected 48×40" in summary.problems[0]
    assert_alike(tmp_path, "case", 9, flow=0.02)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_a_gpu_makes_the_same_of_planes(model: Path, tmp_path: Path) -> None:
    """Recorded, and replayed with other frames; beside RGB of the same size."""
    video = VideoFile(write_video(tmp_path / "case.mp4", 12, (112, 90)))
    predictor, plain = Predictor(model, "cuda"), Predictor(model, "cpu")
    for start in range(0, 12, 4):
        pictures = [video.decode(index) for index in range(start, start + 4)]
        planes: Any = [each.planes() for each in pictures]
        rgb = np.stack([each.rgb() for each in pictures])
        expected = plain(rgb)
        for frames in (planes, rgb):
            pending = predictor.begin(predictor.prepare(frames), None, PLAIN_STYLE)
            for mask, truth in zip(pending, expected, strict=True):
                assert (mask.mask == truth).mean() > 0.96
    assert len(predictor._graph.recordings) == 2
