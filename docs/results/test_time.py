"""What can be done about new videos when they are predicted: `python docs/results/test_time.py FOLDER`.

Every run of a comparison's folder whose model is there is scored on its new videos in several ways, without training:
as it is; averaged with the mirrored frame; smoothed in time as `suture predict --smooth` does it; and with the
statistics of its batch norms taken from the video that is predicted, in full or half from it and half from training.
Classes are left out as in `effects.py`, beside this file.
"""

import argparse
import copy
import functools
import json
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from effects import scores as two_scores
from suture.models.folded import NORMS
from torch import Tensor, nn

from suture.data.dataset import Video
from suture.data.read_scenes import read_scenes
from suture.evaluation.scoring import frames_to_score, protocol_of, score_frames
from suture.evaluation.scoring import scores as all_scores
from suture.models.segmenter import Segmenter
from suture.prediction.smoothing import Smoother
from suture.training.run_folder import Run
from suture.training.train import open_data


class Way(NamedTuple):
    """How a video is predicted."""

    statistics: float = 0
    """The share of batch norms' statistics that are of the video itself."""
    mirrored: bool = False
    smooth: float = 0


WAYS = {
    "as it is": Way(),
    "mirrored too": Way(mirrored=True),
    "smoothed by 0.5": Way(smooth=0.5),
    "smoothed by 0.7": Way(smooth=0.7),
    "half of the statistics": Way(statistics=0.5),
    "half, mirrored too": Way(statistics=0.5, mirrored=True),
    "all of the statistics": Way(statistics=1),
}


class Smoothed(nn.Module):
    """A model whose predictions of one video, in order, are smoothed in time."""

    def __init__(self, model: nn.Module, strength: float) -> None:
        super().__init__()
        self.model, self.smoother = model, Smoother(strength)

    def forward(self, images: Tensor) -> Tensor:
        return self.smoother(images, self.model(images).float().softmax(1)).log()


@torch.no_grad()
def at_home(model: Segmenter, video: Video, indices: Sequence[int], size: tuple[int, int], share: float) -> Segmenter:
    """A copy of which this share of the statistics of batch norms is of a video, by all its frames."""
    own = copy.deepcopy(model).eval()
    norms = [module for module in own.modules() if isinstance(module, NORMS)]
    before = [copy.deepcopy(norm.state_dict()) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over all batches
        norm.train()
    for _, images in read_scenes(video, indices, size, 16):
        if len(images) > 1:
            own(torch.from_numpy(images).to(next(own.parameters()).device).permute(0, 3, 1, 2).float() / 255)
    for norm, trained in zip(norms, before, strict=True):
        here = norm.state_dict()
        for name in ("running_mean", "running_var"):
            here[name].lerp_(trained[name], 1 - share)
    return own.eval()


def score_run(folder: Path, device: str) -> dict[str, list[float]]:
    """Both scores of new videos, each way."""
    run = Run(folder)
    config = run.config
    opened = open_data(config)
    dataset, size = opened.dataset, config.data.height_width
    segmenter = run.segmenter().to(device).eval()
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    (split,) = config.evaluation.splits
    frames = frames_to_score(dataset, opened.labelling, [split], False)[split]
    protocol = protocol_of(dataset, config.evaluation.include_background, metrics[split].get("left_out", ()))
    autocast = torch.bfloat16 if device == "cuda" else None
    found = {}
    for name_of_way, way in WAYS.items():
        parts = []
        for name, indices in frames.items():
            share = way.statistics
            model: Any = at_home(segmenter, dataset[name], indices, size, share) if share else segmenter
            if way.smooth:
                model = Smoothed(model, way.smooth)
            asked = {"flip": way.mirrored, "autocast": autocast}
            parts.append(score_frames(dataset, protocol, model, {name: indices}, size, **asked))
        scored = all_scores(dataset, protocol, functools.reduce(operator.add, parts))
        found[name_of_way] = two_scores(metrics | {"val": scored})[:2]
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    said = options.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = {}
    for folder in sorted((said.folder / "runs").iterdir()):
        if (folder / "metrics.json").exists() and any(folder.glob("model*")):
            rows[folder.name] = score_run(folder, device)
            print(folder.name, *(f"{way}: {a:.1f} {b:.1f};" for way, (a, b) in rows[folder.name].items()), flush=True)
    for way in WAYS:
        apart = np.array([np.subtract(row[way], row["as it is"]) for row in rows.values()])
        told = zip(("mIoU", "per frame"), apart.mean(0), apart.std(0, ddof=1) / len(apart) ** 0.5, strict=True)
        print(f"{way:30s}", ", ".join(f"{name} {mean:+.1f} ± {error:.1f}" for name, mean, error in told))


if __name__ == "__main__":
    main()
