"""Time and memory to list 100,000 frames: `python benchmarks/index.py`.

Opens a folder of 100,000 frames and a video file of as many, each in a process of its own, asks for every frame's
identity (nothing is decoded) and prints seconds and peak memory against the 10 s and 1 GB that Suture promises.
"""

import json
import os
import re
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

from suture.data.datasets import load_dataset

FRAMES = 100_000
PROMISED_SECONDS, PROMISED_BYTES = 10.0, 1e9
PERIOD = 50
HEAD = ("frames of", "frames", "s", "peak MB")


def picture(index: int) -> np.ndarray:
    """A small frame."""
    return np.full((32, 32, 3), index * 5 % 256, np.uint8)


def make_folder(root: Path) -> None:
    """A folder of frames: one image under 100,000 names, since nobody looks into it."""
    folder = root / "case01"
    folder.mkdir(parents=True)
    image = folder / "frame_000000.png"
    cv2.imwrite(str(image), picture(0))
    for index in range(1, FRAMES):
        if index % 10_000 == 0:  # file systems limit the number of links to a file
            image = folder / f"frame_{index:06d}.png"
            cv2.imwrite(str(image), picture(0))
        else:
            os.link(image, folder / f"frame_{index:06d}.png")


def make_file(root: Path) -> None:
    """A video file: the same few encoded frames again and again, since encoding is not what is measured."""
    root.mkdir()
    with av.open(str(root / "case01.mp4"), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 32, 32, "yuv420p", PERIOD
        packets = []
        for index in range(PERIOD):
            frame = av.VideoFrame.from_ndarray(picture(index), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 25)
            packets += stream.encode(frame)
        packets += stream.encode(None)
        encoded = [(bytes(packet), packet.is_keyframe) for packet in packets]
        for index in range(FRAMES):
            data, is_key = encoded[index % PERIOD]
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 25), is_key
            packet.pts = packet.dts = index
            container.mux(packet)


def measure(root: Path) -> dict[str, Any]:
    """In a fresh process: open the dataset, list its frames; what it took."""
    start = time.perf_counter()
    dataset = load_dataset(root)
    listed = sum(1 for video in dataset for frame in video.frames if frame.index not in video.excluded)
    seconds = time.perf_counter() - start
    assert listed == FRAMES, listed
    # Not ru_maxrss, which begins with the memory of the process that started this one.
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return {"kind": root.name, "frames": listed, "seconds": seconds, "peak_bytes": int(peak) * 1024}


def main() -> None:
    """Make both datasets and measure each."""
    from common import parser, report, table  # not above: it imports torch, whose memory would count

    file = parser(__doc__).parse_args().json
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("a folder", make_folder), ("a video file", make_file)):
            root = Path(folder) / name
            make(root)
            command = [sys.executable, __file__, "--measure", str(root)]
            rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    print(table(([r["kind"], r["frames"], r["seconds"], r["peak_bytes"] / 1e6] for r in rows), HEAD))
    print(f"promised: {PROMISED_SECONDS:.0f} s and {PROMISED_BYTES / 1e6:.0f} MB")
    report("index", {"rows": rows}, file)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(Path(sys.argv[2]))))
    else:
        main()
