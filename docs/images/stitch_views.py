"""Draw what a step of stitch sees: `python docs/images/stitch_views.py DATASET OUT.jpg`.

Each column is a labelled sample and its labels, then an unlabelled frame as the teacher and as the student see it.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from suture.data.classes import IGNORE
from suture.data.overlay import paint_mask
from suture.data.sampling.frames import TrainingFrames
from suture.data.store import FrameStore
from suture.methods.stage import Part, StageContext
from suture.methods.stitch import Stitch, StitchSettings
from suture.models.segmenter import build_segmenter
from suture.training.config import load_config
from suture.training.train import open_data

COLUMNS = 6
SIDE = 256
ROWS = ("labelled sample", "with its labels", "the teacher sees", "the student sees")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("dataset", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--step", type=int, default=0)
    given = options.parse_args()
    opened = open_data(load_config(given.dataset, overrides=["data.labelling.every=20"]))
    videos = opened.dataset.split("train")
    labelled = {video.id: opened.labelling[video.id] for video in videos}
    store = FrameStore.open(opened.dataset, {video.id: video.usable for video in videos}, labelled, 2 * SIDE)
    frames = TrainingFrames(opened.dataset, opened.labelling, store)
    context = StageContext(
        frames=frames,
        segmenter=build_segmenter("deeplabv3plus", "tu-test_resnet", len(frames.classes)),
        size=(SIDE, SIDE),
        seed=0,
        shots=frames.places.marked({video.id: [0] for video in videos}).cumsum().tolist(),
        folder=given.out.parent,
        device=torch.device("cpu"),
    )
    stage = Stitch("train", StitchSettings(batch=COLUMNS))
    stage.begin(context)
    batch = stage.render(stage.draw(Part(given.step, range(COLUMNS), range(COLUMNS))))

    def photos(images: torch.Tensor) -> np.ndarray:
        return (images * 255).round().byte().permute(0, 2, 3, 1).numpy()

    colors = np.asarray(frames.classes.colors, np.uint8)
    views = photos(batch.images)
    masks = [paint_mask(*pair, colors) for pair in zip(views, batch.labels.numpy().astype(np.uint8), strict=True)]
    figure = Figure(figsize=(1.5 * COLUMNS, 1.5 * len(ROWS) + 0.1), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)
    grid = figure.subplots(len(ROWS), COLUMNS)
    for row, name, pictures in zip(grid, ROWS, (views, masks, photos(batch.weak), photos(batch.strong)), strict=True):
        row[0].set_ylabel(name, fontsize=8)
        for axes, picture in zip(row, pictures, strict=True):
            axes.imshow(picture)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
    figure.savefig(given.out, dpi=130)
    print(f"{given.out}: {(batch.labels == IGNORE).float().mean():.1%} of the labelled pixels are not learnt")


if __name__ == "__main__":
    main()
