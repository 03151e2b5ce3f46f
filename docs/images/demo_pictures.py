"""Make the pictures of the demo anew, in this folder, after `make demo`: `python docs/images/demo_pictures.py demo`.

The report's need Chromium.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image
from playwright.sync_api import sync_playwright

from suture import load_dataset
from suture.data.dataset import Dataset

HERE = Path(__file__).resolve().parent
ROWS, COLUMNS = 5, 6
SETTLE_MS = 1000
"""Time for the page to draw before its picture is taken."""


def synthetic(dataset: Dataset) -> Figure:
    """Frames of the first cases, evenly over a video of each, with their masks in a corner and the classes below."""
    videos = {video.case: video for video in dataset}.values()
    figure = Figure(figsize=(9.6, 8.3))
    grid = figure.subplots(
        ROWS, COLUMNS, gridspec_kw={"left": 0.03, "right": 1, "top": 1, "bottom": 0.07, "wspace": 0.02, "hspace": 0.02}
    )
    for row, video in zip(grid, videos, strict=False):
        row[0].set_ylabel(video.id, fontsize=8)
        for column, axes in enumerate(row):
            index = video.usable[round((column + 0.5) / COLUMNS * len(video.usable))]
            axes.imshow(cv2.resize(video.read(index), (300, 300), interpolation=cv2.INTER_AREA))
            inset = axes.inset_axes((0.66, 0, 0.34, 0.34))
            inset.imshow(dataset.classes.paint(dataset.read_mask(video, index)), interpolation="nearest")
            for frame in (axes, inset):
                frame.set(xticks=[], yticks=[])
                frame.spines[:].set_color("white")
    named = zip(dataset.classes.names, dataset.classes.colors, strict=True)
    patches = [Patch(color=[part / 255 for part in color], label=name) for name, color in named]
    figure.legend(handles=patches, loc="lower center", ncols=5, fontsize=8, frameon=False)
    return figure


def report_pictures(report: Path, unlabelled: Path) -> None:
    """Sections of the demo's report, and of one with an unlabelled video, as a browser shows them."""
    shots = (
        (report, "predictions", 680, "report-predictions.jpg"),
        (unlabelled, "footage", 720, "report-without-truth.png"),
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for file, section, height, name in shots:
            page = browser.new_page(viewport={"width": 1280, "height": height})
            page.goto(file.resolve().as_uri())
            page.evaluate("document.querySelectorAll('#footage details').forEach(one => one.open = true)")
            page.evaluate(
                "[...document.querySelectorAll('#predictions button')].find(b => b.innerText === 'median')?.click()"
            )
            page.evaluate(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
            page.wait_for_timeout(SETTLE_MS)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.save(HERE / name, quality=80, subsampling=0, optimize=True)
        browser.close()


def run(*command: Any) -> None:
    subprocess.run([sys.executable, "-m", "suture", *map(str, command)], check=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("demo", type=Path)
    demo = options.parse_args().demo
    synthetic(load_dataset(demo / "data")).savefig(HERE / "synthetic.jpg", dpi=100)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        unlabelled, new = Path(folder) / "report.html", Path(folder) / "new"
        run("synthetic", new, "--frames", 60, "--size", "640x480", "--seed", 9)
        video = (new / "videos/case04.mp4").rename(new / "op1.mp4")  # it has a menu above the view
        run("predict", demo / "runs/stitch", video, "-o", new / "predictions")
        overlay = cv2.VideoCapture(str(new / "predictions/op1/overlay.mp4"))
        overlay.set(cv2.CAP_PROP_POS_FRAMES, 30)
        cv2.imwrite(str(HERE / "predict-overlay.jpg"), overlay.read()[1])
        run("report", demo / "runs/supervised", demo / "runs/pgvcl", "--videos", video, "-o", unlabelled)
        report_pictures(demo / "report.html", unlabelled)


if __name__ == "__main__":
    main()
