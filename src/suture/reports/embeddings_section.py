"""Embeddings: t-SNE of pixel features before and after contrast, on a few frames.

The frames are of new videos, since classes are further apart where their labels were learnt.
"""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from suture.core.errors import UserError
from suture.data.dataset import Dataset, WrongMask
from suture.data.read_scenes import read_scene
from suture.evaluation.scoring import Frames
from suture.methods.branches import TwoBranches
from suture.models.model import load_model
from suture.models.segmenter import Segmenter
from suture.reports.finished_model import FinishedModel
from suture.reports.frame_choice import FrameKey, sample
from suture.reports.report_context import ReportContext
from suture.training.run_stages import starting_segmenter

MAX_FRAMES = 10
MAX_PIXELS = 500
"""Pixels that are shown, over all classes."""
MAX_CLASS_PIXELS = 100


@dataclass(frozen=True)
class Embedding:
    """Features of the sampled pixels of one model in two dimensions."""

    title: str
    points: np.ndarray
    separation: float | None
    """Mean silhouette of the classes in feature space, −1 to 1; higher is better separated."""


@dataclass(frozen=True)
class SampledPixels:
    """Pixels of some frames, about equally many of each class."""

    places: np.ndarray
    """Number of the frame, row and column of each pixel, N × 3."""
    classes: np.ndarray
    size: tuple[int, int]
    """Height and width of the masks."""


@dataclass(frozen=True)
class Embeddings:
    """Features of the same pixels in all finished runs, each at two moments."""

    keys: list[FrameKey]
    is_new: bool
    """True if the frames are of new videos, False for labelled training frames."""
    pixels: SampledPixels
    runs: dict[int, list[Embedding]]
    """Before and after the training, by the number of the run."""

    @property
    def classes(self) -> list[int]:
        """Classes with sampled pixels."""
        return sorted(set(self.pixels.classes.tolist()))


def compute_embeddings(context: ReportContext) -> Embeddings | None:
    """Embed pixels of a few frames by every finished run; None without data or models."""
    dataset = context.dataset
    if dataset is None or not context.models:
        return None
    run = context.first
    new = {video.id: video.with_mask for video in context.new_videos if video.with_mask}
    known = {name: [i for i in run.labelled[name] if i in dataset[name].masks] for name in run.videos("train")}
    masks = _read_masks(context, dataset, sample(new or known, MAX_FRAMES))
    if not masks:
        return None
    keys, pixels = list(masks), sample_pixels(list(masks.values()), len(dataset.classes))
    runs: dict[int, list[Embedding]] = {}
    with context.progress("embed pixels", len(context.models)) as progress:
        for number, model in context.models.items():
            for title, segmenter in _before_and_after(model, context).items():
                segmenter = segmenter.to(model.processes.device).eval()
                features = pixel_features(segmenter, dataset, keys, model, pixels)
                runs.setdefault(number, []).append(Embedding(title, *_reduce(features, pixels.classes)))
            progress(1)
    return Embeddings(keys, bool(new), pixels, runs) if runs else None


def sample_pixels(masks: Sequence[np.ndarray], classes: int) -> SampledPixels:
    """Draw equally many pixels of each class, as far as there are enough; the draw is always the same."""
    stack = np.stack(masks)
    generator = np.random.default_rng(0)
    places = [one for number in range(classes) if len(one := np.argwhere(stack == number))]
    each = min(MAX_CLASS_PIXELS, MAX_PIXELS // max(1, len(places)))
    chosen = [one[np.sort(generator.permutation(len(one))[:each])] for one in places]
    pixels = np.concatenate([np.zeros((0, 3), int), *chosen])
    return SampledPixels(pixels, stack[tuple(pixels.T)], stack.shape[1:])


@torch.no_grad()
def pixel_features(
    segmenter: Segmenter, dataset: Dataset, keys: Sequence[FrameKey], model: FinishedModel, pixels: SampledPixels
) -> np.ndarray:
    """Return unit-length features of the pixels (N × channels), interpolated as the network's logits are."""
    device = model.processes.device
    parts: list[Tensor] = []
    for number, (name, index) in enumerate(keys):
        image = torch.from_numpy(read_scene(dataset[name], index, model.size)).to(device)
        features = segmenter.features(image.permute(2, 0, 1)[None].float() / 255).float()
        here = pixels.places[:, 0] == number
        # The grid reaches beyond the image if its sides are no multiples of the stride.
        covered = [side * segmenter.stride for side in features.shape[-2:]]
        x, y = (
            (pixels.places[here, axis + 1] + 0.5) / pixels.size[axis] * model.size[axis] / covered[axis] * 2 - 1
            for axis in (1, 0)
        )
        grid = torch.from_numpy(np.stack([x, y], 1))[None, None].float().to(device)
        values = F.grid_sample(features, grid, mode="bilinear", padding_mode="border", align_corners=False)
        parts.append(F.normalize(values[0, :, 0].T, dim=1).cpu())
    order = np.argsort(pixels.places[:, 0], kind="stable")
    return torch.cat(parts).numpy()[np.argsort(order)]


def _reduce(features: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, float | None]:
    """Return the features in two dimensions, and the separation of the classes."""
    from sklearn.manifold import TSNE
    from sklearn.metrics import silhouette_score

    count = len(features)
    if count < 4:  # t-SNE needs neighbours
        return np.zeros((count, 2)), None
    separation = float(silhouette_score(features, classes)) if 2 <= len(np.unique(classes)) < count else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all features are the same in a network that has learnt nothing
        tsne = TSNE(2, perplexity=min(30.0, (count - 1) / 3), init="pca", random_state=0)
        return np.nan_to_num(tsne.fit_transform(features)), separation


def _before_and_after(model: FinishedModel, context: ReportContext) -> dict[str, Segmenter]:
    """Return two moments of a run to compare; none if its starting weights are not available.

    A contrast stage is compared with the stage before it, another method's final model with its starting weights.
    """
    run = model.run
    description = model.segmenter.describe()
    trained = [(stage, folder.weights) for stage, folder in run.method_stages if folder.weights]
    for (earlier, before), (stage, after) in pairwise(trained):
        if isinstance(stage, TwoBranches):
            return {
                f"before {stage.name} (after {earlier.name})": load_model(before, description),
                f"after {stage.name}": load_model(after, description),
            }
    try:
        start = starting_segmenter(run.config, len(run.classes), model.processes)
    except UserError as error:
        remark = f"The starting weights of {run.title} are not available: its embeddings are left out."
        context.warn(f"The embeddings of {run.title} are left out", error, remark)
        return {}
    return {"starting weights": start, "final model": model.segmenter}


def _read_masks(context: ReportContext, dataset: Dataset, frames: Frames) -> dict[FrameKey, np.ndarray]:
    """Read the class ids of frames in their view, at the input size of the first run, without invalid masks."""
    size = context.first.config.data.height_width[::-1]
    masks = {}
    for name, indices in frames.items():
        video = dataset[name]
        for index in indices:
            with suppress(WrongMask):  # reported by training and evaluation, which need it
                mask = video.view.crop(dataset.read_mask(video, index))
                masks[name, index] = cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST_EXACT)
    return masks
