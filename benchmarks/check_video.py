"""Time of the first `suture check` of long 1080p video, and of the commands after it.

The file is generated: a moving picture in H.264 at 8 Mbit/s and 25 frames per second, with a key frame every 10 s. Time
grows with the length, so that an hour takes `60 / MINUTES` times as long as measured here.

Usage: `python benchmarks/check_video.py [--minutes 6] [--folder FOLDER]`. The default of half a minute of video takes
about a minute.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

WIDTH, HEIGHT, FPS, KEY_S, BITS_PER_S = 1920, 1080, 25, 10, 8_000_000


def moving_picture(index: int) -> np.ndarray:
    """Planes of yuv420 of a textured picture under a camera that moves."""
    generator = np.random.default_rng(0)
    coarse = generator.integers(60, 200, (40, 60), np.uint8)
    light = cv2.resize(coarse, (WIDTH + 256, HEIGHT + 256), interpolation=cv2.INTER_CUBIC)
    light = cv2.add(light, generator.integers(0, 48, light.shape, np.uint8))
    x, y = int(128 + 120 * np.sin(index / 20)), int(128 + 120 * np.cos(index / 27))
    tints = np.full((HEIGHT // 2, WIDTH), 128, np.uint8)
    return np.vstack([light[y : y + HEIGHT, x : x + WIDTH], tints])


def write_video(path: Path, seconds: int) -> None:
    """Encode the time between two key frames once, and repeat its packets."""
    with av.open(str(path), "w") as file:
        options = {"preset": "veryfast", "bf": "2", "sc_threshold": "0"}
        stream: Any = file.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = WIDTH, HEIGHT, "yuv420p", BITS_PER_S
        stream.gop_size, stream.codec_context.time_base = FPS * KEY_S, Fraction(1, FPS)
        packets = []
        for index in range(FPS * KEY_S):
            frame = av.VideoFrame.from_ndarray(moving_picture(index), format="yuv420p")
            frame.pts, frame.time_base = index, Fraction(1, FPS)
            packets += stream.encode(frame)
        packets += stream.encode(None)
        content = [(bytes(packet), packet.pts, packet.dts, packet.is_keyframe) for packet in packets]
        for start in range(0, FPS * seconds, FPS * KEY_S):
            for data, shown, sent, is_key in content:
                packet = av.Packet(data)
                packet.stream, packet.time_base = stream, Fraction(1, FPS)
                packet.pts, packet.dts, packet.is_keyframe = start + shown, start + sent, is_key
                file.mux(packet)
    os.utime(path, (0, 0))  # a file that has just been written might still change


def run(*words: str | Path, cache: Path) -> float:
    """Run a command of Suture; return its time in seconds."""
    start = time.monotonic()
    command = [sys.executable, "-m", "suture", *map(str, words)]
    subprocess.run(command, env=os.environ | {"SUTURE_CACHE": str(cache)}, capture_output=True, check=False)
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--folder", type=Path, help="where the video is written; else a temporary folder")
    options = parser.parse_args()
    seconds = KEY_S * max(1, round(60 * options.minutes / KEY_S))
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        root = Path(temporary)
        (root / "data").mkdir()
        video = root / "data/video.mp4"
        write_video(video, seconds)
        rate = 8 * video.stat().st_size / seconds / 1e6
        first = run("check", root / "data", cache=root / "cache")
        again = run("check", root / "data", cache=root / "cache")
        select = run("select", root / "data", "-o", root / "label", "--budget", "10", cache=root / "cache")
    hour = (first - again) * 3600 / seconds + again
    print(f"{seconds} s of {WIDTH}x{HEIGHT} at {FPS} fps, {rate:.1f} Mbit/s, on {len(os.sched_getaffinity(0))} cores")
    print(f"first check:  {first:6.1f} s; an hour of video: {hour / 60:.1f} min")
    print(f"second check: {again:6.1f} s")
    print(f"select of 10: {select:6.1f} s")


if __name__ == "__main__":
    main()
