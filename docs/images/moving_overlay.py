"""Make the moving picture of the README: `python docs/images/moving_overlay.py WORK docs/images/overlay.webp`.

Generates video, trains on one labelled frame in ten, predicts a video of a new case and draws both side by side.
Everything goes into WORK; steps that are done are not repeated. The training takes minutes on a GPU.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from suture import load_dataset
from suture.data.dataset import Video
from suture.data.overlay import paint_mask

SETTINGS = (
    "data.size=[288, 384]",
    "data.labelling.every=10",
    "model.architecture=deeplabv3plus",
    "model.encoder=resnet34",
    "model.weights=null",
    "method.train.steps=6000",
    "method.train.optimizer.lr=1e-3",
    "method.train.confidence=0.95",
)
WIDTH, HEIGHT = 400, 300
MS_PER_FRAME = 80
OPACITY = 0.5


def suture(*command: Any) -> None:
    subprocess.run([sys.executable, "-m", "suture", *map(str, command)], check=True)


def prepare(work: Path) -> tuple[Video, Path]:
    """Train and predict in `work`; returns the new video and the folder of its masks."""
    if not (work / "data").exists():
        suture("synthetic", work / "data", "--cases", 20, "--frames", 60, "--size", "640x480")
    if not (work / "new").exists():
        suture("synthetic", work / "new", "--cases", 3, "--frames", 90, "--size", "640x480", "--fps", 12, "--seed", 7)
    video = load_dataset(work / "new")["case03"]
    masks = work / "predictions" / video.id / "masks"
    if not masks.exists():
        options = [part for setting in SETTINGS for part in ("--set", setting)]
        suture("train", work / "data", "-o", work / "run", *options)
        suture("predict", work / "run", work / f"new/videos/{video.id}.mp4", "-o", work / "predictions")
    return video, masks


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("work", type=Path)
    options.add_argument("out", type=Path)
    given = options.parse_args()
    video, masks = prepare(given.work)
    font = ImageFont.load_default(15)
    pictures = []
    for index in video.usable:
        frame = video.read(index)
        mask = Image.open(masks / f"{video.id}__frame_{index:06d}.png")
        palette = np.array(mask.getpalette(), np.uint8).reshape(-1, 3)[:255]
        painted = paint_mask(frame, np.asarray(mask), palette, opacity=OPACITY)
        pair = Image.new("RGB", (2 * WIDTH, HEIGHT))
        for place, picture in enumerate((frame, painted)):
            pair.paste(Image.fromarray(picture).resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS), (place * WIDTH, 0))
        draw = ImageDraw.Draw(pair)
        for place, text in enumerate(("video", "predicted")):
            draw.text((place * WIDTH + 8, HEIGHT - 24), text, "white", font, stroke_width=2, stroke_fill="black")
        pictures.append(pair)
    pictures[0].save(
        given.out, save_all=True, append_images=pictures[1:], duration=MS_PER_FRAME, loop=0, quality=55, method=6
    )
    print(f"{given.out}: {len(pictures)} frames, {given.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
