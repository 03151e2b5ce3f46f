"""Speed of the studio in Chromium: `python benchmarks/studio.py`.

Serves generated 720p video and 100,000 frames on this machine, and prints how long the page takes to the first frame,
how many frames it shows per second while scrubbing, how long an event of a brush stroke takes, and how long a long
dataset takes to open.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from common import parser, report, table
from index import FRAMES, make_file, make_folder
from playwright.sync_api import Page, sync_playwright

VIDEO_FRAMES = 240
PROMISES = {
    "first frame (ms)": 300.0,
    "scrubbing (frames/s)": 20.0,
    "brush event (ms)": 16.0,
    "open a file of 100,000 frames (s)": 2.0,
    "open a folder of 100,000 frames (s)": 2.0,
}
SCRUB = """async (count) => {
  const start = performance.now();
  for (let i = 0; i < count; i++) {
    await studio.showFrame(2 * i < count ? 2 * i : 2 * (count - i));
    await new Promise(requestAnimationFrame);
  }
  return count / (performance.now() - start) * 1000;
}"""
"""Forth and back over the video by two frames, each shown before the next is asked for."""
BRUSH = """async (count) => {
  const canvas = document.getElementById("canvas"), times = [];
  const send = (type, i) => {
    const [clientX, clientY] = studio.toScreen(200 + 8 * i, 300 + 100 * Math.sin(i / 9));
    const place = { clientX, clientY, pointerId: 1, button: 0, buttons: 1 };
    canvas.dispatchEvent(new PointerEvent(type, place));
  };
  canvas.setPointerCapture = () => {};
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    send(i === 0 ? "pointerdown" : i === count - 1 ? "pointerup" : "pointermove", i);
    times.push(performance.now() - start);
    await new Promise(requestAnimationFrame);
  }
  return times.sort((a, b) => a - b)[Math.floor(count * 0.95)];
}"""
"""95th percentile of the time that an event of a stroke takes, with its painting."""
OPEN = """async () => {
  const start = performance.now();
  await studio.getJson("/api/overview");
  await studio.getJson("/api/videos/0");
  return (performance.now() - start) / 1000;
}"""


@contextmanager
def served(root: Path) -> Iterator[tuple[str, float]]:
    """Serve a dataset; yield the address, and the seconds that reading the dataset took."""
    code = (
        "import sys, time, pathlib; from suture.studio.server import serve; from suture.studio.workspace import "
        "Workspace; start = time.perf_counter(); w = Workspace(pathlib.Path(sys.argv[1]), pathlib.Path('none')); "
        "print(time.perf_counter() - start, flush=True); serve(w, 0, lambda a: print(a, flush=True))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        seconds = float(process.stdout.readline())
        address = re.search(r"http\S+", process.stdout.readline())
        assert address
        yield address[0], seconds
    finally:
        process.kill()
        process.wait()


def make_video(root: Path) -> Path:
    """Write a dataset of one 720p video, with the long groups of pictures that recorders write."""
    (root / "masks").mkdir(parents=True)
    classes = "classes: [{name: background, value: 0}, {name: tool, value: 1}]"
    (root / "dataset.yaml").write_text(f"masks: masks\n{classes}\nunpainted: background\n", encoding="utf-8")
    small = np.random.default_rng(0).integers(40, 220, (45, 80, 3), np.uint8)
    picture = cv2.resize(small, (1280, 720), interpolation=cv2.INTER_CUBIC)
    with av.open(str(root / "case01.mp4"), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = 1280, 720, "yuv420p"
        for index in range(VIDEO_FRAMES):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, 3 * index, axis=1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return root


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("body[data-ready=true]").wait_for()


def measure(page: Page, folder: Path) -> dict[str, float]:
    """Measure each promise."""
    figures: dict[str, float] = {}
    with served(make_video(folder / "video")) as (address, _):
        time.sleep(2)  # the server looks at the videos
        open_page(page, address)
        page.reload()
        page.locator("body[data-ready=true]").wait_for()
        shown = page.evaluate("performance.getEntriesByName('frame')[0].startTime")
        figures["first frame (ms)"] = shown
        figures["scrubbing (frames/s)"] = page.evaluate(SCRUB, VIDEO_FRAMES)
        page.evaluate("document.querySelector('[data-tool=brush]').click()")
        figures["brush event (ms)"] = page.evaluate(BRUSH, 100)
    for kind, make in (("file", make_file), ("folder", make_folder)):
        root = folder / kind
        make(root)
        with served(root) as (address, seconds):
            open_page(page, address)
            figures[f"open a {kind} of {FRAMES:,} frames (s)"] = seconds + page.evaluate(OPEN)
    return figures


def main() -> None:
    file = parser(__doc__).parse_args().json
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, sync_playwright() as playwright:
        browser: Any = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        figures = measure(browser.new_page(viewport={"width": 1280, "height": 800}), Path(folder))
        browser.close()
    rows = [[name, figures[name], promise] for name, promise in PROMISES.items()]
    print(table(rows, ("studio", "measured", "promised")))
    report("studio", {"figures": figures}, file)


if __name__ == "__main__":
    main()
