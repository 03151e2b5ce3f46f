"""Real files for the tests of prediction: a tiny finished model, videos of many kinds; and what passes for a GPU."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import torch

from suture.models.model import Model
from suture.models.model_files import TRAINED_ON
from suture.models.segmenter import build_segmenter
from suture.prediction.predictor import Predictor

NAMES = ("tissue", "tool", "vessel")
COLORS = ((200, 120, 110), (0, 114, 178), (240, 228, 66))


def write_model(folder: Path, size: tuple[int, int] = (32, 32), view: Any = "auto", videos_by: str = "folder") -> Path:
    """A run folder's two model files, with random weights that tell colours apart, and notes of their training."""
    torch.manual_seed(3)
    segmenter = build_segmenter("deeplabv3", "tu-test_resnet", classes=len(NAMES)).eval()
    with torch.no_grad():  # random weights are unsure and flat: let them decide
        segmenter.head.get_parameter("classifier.weight").mul_(30)
    Model(segmenter, NAMES, COLORS, size).save(folder, {TRAINED_ON: json.dumps({"view": view, "videos_by": videos_by})})
    return folder


def picture(index: int, width: int = 48, height: int = 40) -> np.ndarray:
    """A smooth picture that moves slowly with its index."""
    rows, columns = np.mgrid[:height, :width]
    waves = [np.sin((columns + rows * k) / 9 + index * 0.2 * (1 + k)) * 60 + 130 for k in range(3)]
    return np.stack(waves, -1).astype(np.uint8)


def write_video(
    path: Path,
    frames: int = 12,
    size: tuple[int, int] = (48, 40),
    *,
    codec: str = "libx264",
    stamps: Sequence[int] | None = None,
    sound: bool = False,
    aspect: Fraction | None = None,
    options: dict[str, str] | None = None,
) -> Path:
    """Encode pictures at 10 frames per second; `stamps` in milliseconds make a variable frame rate."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=options or {}) as container:
        stream: Any = container.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.gop_size, stream.codec_context.max_b_frames = 6, 2
        stream.codec_context.time_base = Fraction(1, 1000)
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if sound:
            container.mux(_silence(container.add_stream("aac", rate=8000)))
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(index, *size), format="rgb24")
            frame.pts = 100 * index if stamps is None else stamps[index]
            frame.time_base = Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_sound(path: Path) -> Path:
    """A file with sound only."""
    with av.open(str(path), "w") as container:
        container.mux(_silence(container.add_stream("aac", rate=8000)))
    return path


def write_images(folder: Path, count: int = 5, size: tuple[int, int] = (48, 40), suffix: str = ".png") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        cv2.imwrite(str(folder / f"frame{index}{suffix}"), picture(index, *size)[..., ::-1])
    return folder


def _silence(stream: Any) -> list[Any]:
    stream.layout = "mono"
    frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
    frame.sample_rate, frame.pts = 8000, 0
    return [*stream.encode(frame), *stream.encode(None)]


class Here:
    """Takes the place of `Gpu`: frames need not travel."""

    computing = staticmethod(nullcontext)

    def memory(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.uint8)

    def upload(self, frames: torch.Tensor) -> torch.Tensor:
        return frames

    def pin(self, memory: np.ndarray) -> None:
        pass

    unpin = pin

    def download(self, results: list[torch.Tensor], into: list[torch.Tensor | None]) -> tuple[list[torch.Tensor], None]:
        copies = [one if memory is None else memory.copy_(one) for one, memory in zip(results, into, strict=True)]
        return copies, None


def wait(until: Callable[[], bool]) -> None:
    """Until it is so, which must not take long."""
    last = time.monotonic() + 60
    while not until():
        assert time.monotonic() < last
        time.sleep(0.01)


def as_on_a_gpu(folder: Path, device: str = "cpu") -> Predictor:
    predictor: Any = Predictor(folder, device)
    predictor.gpu, predictor._graph = Here(), lambda function, *inputs: function(*inputs)
    return predictor
