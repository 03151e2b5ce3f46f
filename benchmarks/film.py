"""What the overlay video's encoder takes, and what it leaves of the picture: `python benchmarks/film.py`.

The same moving frames are encoded at constant quality, as one usually would, by x264's presets `veryfast` and
`ultrafast`; then as Suture does it, which spends the same on each frame; and as it does it on many cores, by several
encoders with groups of frames of their own. For each: the time of the cores, the bytes of a frame, and the
signal-to-noise ratio of its luma.
"""

import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import av
import numpy as np
import plot
from common import parser, report
from inference import FPS, scenes

from suture.prediction import video_writer as film
from suture.prediction.video_writer import rgb_to_planes, video_frame, video_writer

Frames = list[np.ndarray]
"""Planes of yuv420."""


def plain(preset: str, frames: Frames, path: Path) -> None:
    """At constant quality."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", Fraction(FPS), {"preset": preset, "crf": "20"})
        stream.height, stream.width = frames[0].shape[0] * 2 // 3, frames[0].shape[1]
        stream.codec_context.thread_type = "AUTO"
        for frame in frames:
            container.mux(stream.encode(video_frame(frame, "yuv420p")))
        container.mux(stream.encode(None))


def ours(encoders: int, frames: Frames, path: Path) -> None:
    """As Suture writes overlays, by so many encoders."""
    with (
        mock.patch.object(film, "encoders", return_value=encoders),
        video_writer(path, "libx264", FPS) as video,
    ):
        for index, frame in enumerate(frames):
            video.add(video_frame(frame, "yuv420p"), index / FPS)


WAYS: dict[str, Callable[[Frames, Path], None]] = {
    "veryfast, crf 20": partial(plain, "veryfast"),
    "ultrafast, crf 20": partial(plain, "ultrafast"),
    "ours": partial(ours, 1),
    "ours, 4 encoders": partial(ours, 4),
}


def milliseconds(write: Callable[[Frames, Path], None], frames: Frames, path: Path) -> float:
    """Of a core, for each frame."""
    start = time.process_time()
    write(frames, path)
    return (time.process_time() - start) / len(frames) * 1000


def noise_ratio(frames: Frames, path: Path) -> float:
    """In dB, by the mean error over all frames."""
    with av.open(str(path)) as video:
        errors = [
            np.mean((found.to_ndarray().astype(int) - frame)[: found.height] ** 2)
            for frame, found in zip(frames, video.decode(video=0), strict=True)
        ]
    return float(10 * np.log10(255**2 / np.mean(errors)))


def main() -> None:
    """Encode the same frames each way."""
    options = parser(__doc__)
    options.add_argument("--frames", type=int, default=96)
    options.add_argument("--size", default="1280x1024", help="of the frames")
    said = options.parse_args()
    width, height = (int(side) for side in said.size.split("x"))
    frames = [rgb_to_planes(frame) for frame in scenes(said.frames, width, height)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        for way, write in WAYS.items():
            spent = min(milliseconds(write, frames, path) for _ in range(2))
            size = path.stat().st_size / len(frames)
            rows.append({"way": way, "cpu_ms": spent, "bytes": size, "psnr": noise_ratio(frames, path)})
    print(f"{said.frames} frames of {said.size}:")
    figures = {"size": said.size, "frames": said.frames, "rows": rows}
    print(plot.film(figures))
    report("film", figures, said.json)


if __name__ == "__main__":
    main()
