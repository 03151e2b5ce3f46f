"""Frames per second of the renderer on one core: `python benchmarks/render.py`.

Prints frames per second of wall-clock and of CPU time (the two differ where the machine is shared), and how that
compares with the 20 frames/s that Suture promises at 256x256.
"""

import time

import cv2
from common import parser, report

from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import SyntheticSettings, plan_videos

PROMISED = 20.0


def main() -> None:
    """Render the default videos of four cases and count."""
    file = parser(__doc__).parse_args().json
    cv2.setNumThreads(1)
    settings = SyntheticSettings(cases=4)
    wall, cpu = time.perf_counter(), time.process_time()
    frames = sum(1 for video in plan_videos(settings) for _ in render_video(video))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{frames} frames of {settings.width}x{settings.height}, one core, scenes included")
    print(f"{frames / wall:6.1f} frames/s of wall-clock time ({frames / wall / PROMISED:.1f}x of {PROMISED:.0f})")
    print(f"{frames / cpu:6.1f} frames/s of CPU time        ({frames / cpu / PROMISED:.1f}x of {PROMISED:.0f})")
    size = {"width": settings.width, "height": settings.height}
    report("render", {"frames": frames, **size, "wall_fps": frames / wall, "cpu_fps": frames / cpu}, file)


if __name__ == "__main__":
    main()
