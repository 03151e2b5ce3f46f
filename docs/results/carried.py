"""How right carried labels are, by whose features they are carried: `python docs/results/carried.py RUN`.

Nothing is trained. Every unlabelled training frame with a mask gets the labels of its nearest labelled frame of the
shot, or of the two around it, as `stitch` carries them, but whole and joined with no prediction. Told are the share of
the pixels in or beside a cell that finds back and how many of these are right; then how many of all pixels are, and
their mIoU; of all but those of frames whose shot has no label. The features are those of the run's model, of ResNet-50
as ImageNet left it, and of SAM 2's encoder, which is shown larger frames. Last, what carried labels make of the model's
own predictions of these frames.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from suture.data.classes import IGNORE
from suture.data.read_scenes import read_scene
from suture.evaluation.metrics import confusion, iou, mean, pixel_accuracy
from suture.losses.correspondence import join
from suture.methods.stitch import CorrespondenceSettings, Neighbours, Stitch, StitchSettings
from suture.models.segmenter import Segmenter, build_segmenter
from suture.training.distributed import Processes
from suture.training.run_folder import Run
from suture.training.session import Session
from suture.training.stages import make_job
from suture.training.train import open_data

WEIGHTS = Path(__file__).parents[3] / "shared" / "weights"
CELLS = 32
"""On a side of the grid, about; fewer where features are coarser."""


class Looked(NamedTuple):
    """Features of a network: B 3 side side in, B D side/stride side/stride out."""

    name: str
    side: int
    stride: int
    features: Callable[[Tensor], Tensor]


def of_encoder(name: str, segmenter: Segmenter, side: int, stride: int) -> Looked:
    """What an encoder has at a stride, the last such level."""

    def features(images: Tensor) -> Tensor:
        levels = segmenter.eval().backbone.encoder((images - segmenter.mean) / segmenter.std)
        return [level for level in levels if level.shape[-1] * stride == images.shape[-1]][-1]

    return Looked(name, side, stride, features)


def looked_at(own: Segmenter, size: int) -> list[Looked]:
    """All that are compared."""
    resnet = build_segmenter(
        "deeplabv3", "resnet50", 2, 8, WEIGHTS / "resnet50_imagenet_caffe.safetensors", layout="caffe"
    )
    sam = build_segmenter("upernet", "tu-sam2_hiera_tiny", 2, weights=WEIGHTS / "sam2_hiera_tiny.safetensors")
    return [
        Looked(f"the run's model, frames of {size}", size, own.stride, own.eval().features),
        of_encoder("ImageNet's ResNet-50, stride 8", resnet, 8 * CELLS, 8),
        of_encoder("SAM 2's encoder, stride 16", sam, 16 * CELLS, 16),
    ]


class Grid(nn.Module):
    """All that is asked of a segmenter where labels are carried."""

    def __init__(self, stride: int, classes: int) -> None:
        super().__init__()
        self.stride, self.classes = stride, classes


class Carrier:
    """Carries labels by some features, as a stage of stitch does; the stage is its own until another one is made."""

    def __init__(self, stage: Stitch, looked: Looked, session: Session) -> None:
        self.stage, self.looked, self.dataset = stage, looked, session.opened.dataset
        self.frames, self.classes = stage.job.frames, len(self.dataset.classes)
        self.seen: dict[int, Tensor] = {}
        stage.segmenter = Grid(looked.stride, self.classes)  # type: ignore[assignment]
        stage.cell = looked.stride * max(1, round(looked.side / CELLS / looked.stride))

    def features(self, number: int) -> Tensor:
        if number not in self.seen:
            side = self.looked.side
            pixels = read_scene(*self.frames.places[number], (side, side))
            image = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
            self.seen[number] = self.looked.features(image)
        return self.seen[number]

    def truth(self, number: int) -> np.ndarray:
        video, index = self.frames.places[number]
        mask = video.view.crop(self.dataset.read_mask(video, index))
        return cv2.resize(mask, (self.looked.side, self.looked.side), interpolation=cv2.INTER_NEAREST_EXACT)

    def carried(self, number: int, settings: StitchSettings) -> Tensor:
        """The labels that a frame gets, and how far they count: C side side."""
        self.stage.settings, c = settings, settings.correspondence
        found = self.stage.around.of(number, c.neighbours)
        nearness = torch.tensor([[0.5 ** (distance / c.half_life) for _, distance in found]])
        labels = torch.from_numpy(np.stack([self.truth(n) for n, _ in found]))
        features = torch.cat([*(self.features(n) for n, _ in found), self.features(number)])
        return self.stage.carried(features, Neighbours(torch.empty(0), labels, nearness))[0]

    def frames_with_mask(self) -> list[int]:
        """The unlabelled ones of which the truth is known."""
        places = self.frames.places
        return [n for n in self.frames.unlabelled.tolist() if places[n][1] in places[n][0].masks]

    def measured(self, settings: StitchSettings) -> tuple[float, float, float]:
        """The share of pixels that have a carried label, the share of these that is right, and their mIoU."""
        known, matrix = 0, self.nothing()
        for number in self.frames_with_mask():
            carried, true = self.carried(number, settings), self.truth(number)
            known += int((true != IGNORE).sum())
            true = np.where(carried.sum(0).numpy() > 0, true, IGNORE).astype(np.uint8)
            matrix += confusion(carried.argmax(0).to(torch.uint8), true, self.classes)
        return 100 * matrix[:-1].sum() / known, 100 * float(pixel_accuracy(matrix)), 100 * float(mean(iou(matrix)))

    def joined(self, model: Segmenter, settings: StitchSettings | None) -> float:
        """The mIoU of a model's predictions, joined with what is carried."""
        matrix = self.nothing()
        for number in self.frames_with_mask():
            size = (self.looked.side, self.looked.side)
            belief = model.classify(self.features(number), size).softmax(1)
            if settings is not None:
                belief = join(belief, self.carried(number, settings)[None])
            matrix += confusion(belief[0].argmax(0).to(torch.uint8), self.truth(number), self.classes)
        return 100 * float(mean(iou(matrix)))

    def nothing(self) -> np.ndarray:
        return np.zeros((self.classes + 1, self.classes + 1))


@torch.no_grad()
def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path)
    run = Run(options.parse_args().run)
    config, opened = run.config, open_data(run.config)
    session = Session(run, config, opened, run.data, Processes.start(config.compute), Console(quiet=True))
    own, stage = run.segmenter(), Stitch("train", StitchSettings())
    stage.begin(make_job(session, [stage], own))
    print("| features | neighbours | find back | right of these | right of all | mIoU of all |")
    print("| --- |" + " ---: |" * 5)
    ways = looked_at(own, max(config.data.height_width))
    for looked in ways:
        carrier = Carrier(stage, looked, session)
        for neighbours in (1, 2):
            share, right, _ = carrier.measured(asked(neighbours))
            _, of_all, miou = carrier.measured(asked(neighbours, cycle=looked.side))
            cells = (f"{value:.1f}" for value in (share, right, of_all, miou))
            print(f"| {looked.name} | {neighbours} | " + " | ".join(cells) + " |", flush=True)
    carrier = Carrier(stage, ways[0], session)
    print(f"\npredictions of the run's model: mIoU {carrier.joined(own, None):.1f}")
    for neighbours in (1, 2):
        print(f"joined with labels of {neighbours}: {carrier.joined(own, asked(neighbours, propagate=0.8)):.1f}")


def asked(neighbours: int, cycle: int = 1, propagate: float = 1) -> StitchSettings:
    return StitchSettings(
        propagate=propagate, correspondence=CorrespondenceSettings(neighbours=neighbours, cycle=cycle)
    )


if __name__ == "__main__":
    main()
