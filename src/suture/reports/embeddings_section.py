"""How features of pixels lie to each other before and after contrast: t-SNE on a few frames that show every class.

The frames are of new videos: where the labels were learnt, classes lie further apart than they do where it matters.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from rich.markup import escape
from torch import Tensor

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Dataset, WrongMask
from suture.data.read_scenes import read_scene
from suture.methods.branches import TwoBranches
from suture.models.model import load_model
from suture.models.segmenter import Segmenter
from suture.reports.charts import scatter
from suture.reports.context import Context
from suture.reports.inference_cache import FinishedModel, Place
from suture.reports.overlays import Frames, data_uri, sample, scene
from suture.training.callbacks import bar
from suture.training.stages import starting_segmenter

FRAMES = 5
_POINTS = 500
"""Pixels that are shown, over all classes."""
_PER_CLASS = 100
_LOOKED_AT = 150
"""Frames among which those that show every class are sought first; all of them where these do not do."""
_LEAST_PIXELS = 20
"""A frame with fewer pixels of a class does not show it."""
_SIDE = 200


@dataclass(frozen=True)
class Embedding:
    """The features of the sampled pixels in two dimensions."""

    title: str
    points: np.ndarray
    separation: float | None
    """Mean silhouette of the classes, of the features themselves: from −1 to 1, higher is better separated."""


@dataclass(frozen=True)
class RunEmbeddings:
    """One run's features before and after."""

    number: int
    about: str
    before: Embedding
    after: Embedding


@dataclass(frozen=True)
class Pixels:
    """Pixels of some frames, about equally many of each class."""

    frame: np.ndarray
    row: np.ndarray
    column: np.ndarray
    classes: np.ndarray
    size: tuple[int, int]
    """Height and width of the masks that rows and columns count in."""


@dataclass(frozen=True)
class Embeddings:
    """What the section shows."""

    places: list[Place]
    new: bool
    """Whether the frames are of new videos; else they are labelled ones that were learnt from."""
    pixels: Pixels
    runs: list[RunEmbeddings]
    missing: list[str]
    """Classes that none of the frames has a pixel of."""


@dataclass(frozen=True)
class _Pair:
    """Two segmenters of one run, with their names."""

    about: str
    before: tuple[str, Segmenter]
    after: tuple[str, Segmenter]


def embeddings(context: Context) -> Embeddings | None:
    """The features of a few frames in every finished run; None where there are none to look at."""
    dataset = context.dataset
    if dataset is None or not context.models:
        return None
    new = {video.id: video.with_mask for video in context.new_videos if video.with_mask}
    shown = _classes_shown(context, dataset, new or _labelled(context, dataset))
    places = covering(shown, FRAMES)
    if not places:
        return None
    masks = [_mask(context, dataset, place) for place in places]
    pixels = sample_pixels(masks, len(dataset.classes))
    if len(pixels.classes) < 4:
        return None
    found = []
    with bar("embed pixels", 2 * len(context.models), context.console) as (progress, task):
        for number, model in context.models.items():
            pair = _before_and_after(model, len(dataset.classes), context)
            if pair is None:
                progress.advance(task, 2)
                continue
            both = []
            for title, segmenter in (pair.before, pair.after):
                features = pixel_features(segmenter.to(model.processes.device).eval(), dataset, places, model, pixels)
                both.append(Embedding(title, *_reduced(features, pixels.classes)))
                progress.advance(task)
            found.append(RunEmbeddings(number, pair.about, *both))
    missing = [name for number, name in enumerate(dataset.classes.names) if number not in pixels.classes]
    return Embeddings(places, bool(new), pixels, found, missing) if found else None


def embeddings_section(context: Context, found: Embeddings | None) -> dict[str, Any] | None:
    """The same for the template."""
    if found is None or context.dataset is None:
        return None
    videos = {video.id: video for video in context.dataset}
    return {
        "frames": [
            {
                "video": name,
                "index": index,
                "photo": data_uri(scene(videos[name], index, _SIDE)) if context.frames else None,
            }
            for name, index in found.places
        ],
        "new": found.new,
        "missing": found.missing,
        "points": len(found.pixels.classes),
        "classes": np.unique(found.pixels.classes).tolist(),
        "runs": [
            {
                "number": one.number,
                "about": one.about,
                "pair": [
                    {
                        "title": side.title,
                        "separation": side.separation,
                        "chart": scatter(
                            f"{context.runs[one.number].name}, {side.title}: pixels by class",
                            side.points,
                            found.pixels.classes,
                        ),
                    }
                    for side in (one.before, one.after)
                ],
            }
            for one in found.runs
        ],
    }


def covering(shown: Mapping[Place, set[int]], count: int) -> list[Place]:
    """So many frames that together show every class, if so many can, and else as many classes as one after the other
    adds; the frames that are left to choose show the rarest ones again. They are of all videos, and far apart in each.

    >>> covering({("a", 0): {0, 1}, ("a", 1): {0}, ("a", 2): {0, 2}, ("b", 0): {0, 1}}, 3)
    [('a', 0), ('a', 2), ('b', 0)]
    """
    every = _together(shown, shown)
    chosen = _one_by_one(shown, [], count)
    # The frame that shows most may be the wrong one to begin with. There are few kinds of frames.
    kinds = {frozenset(classes) for classes in shown.values()}
    if _together(shown, chosen) != every and (needed := _showing(kinds, every, count)):
        chosen = _one_by_one(shown, needed, count)
    return sorted(chosen)


def _one_by_one(shown: Mapping[Place, set[int]], needed: Sequence[frozenset[int]], count: int) -> list[Place]:
    """One frame at a time: for each of the sets one that shows it, then those that add the most classes.

    Of equal ones it is that of the video with the fewest so far, away from the others in it, with the rarest classes.
    """
    indices: dict[str, list[int]] = {}
    for video, index in shown:
        indices.setdefault(video, []).append(index)
    away = {video: (max(of_video) - min(of_video)) / count for video, of_video in indices.items()}
    chosen: list[Place] = []
    seen: Counter[int] = Counter()

    def gain(place: Place) -> tuple[int, int, bool, float, float]:
        video, index = place
        new = sum(number not in seen for number in shown[place])
        beside = [abs(index - other) for name, other in chosen if name == video]
        apart = min(beside, default=math.inf)
        return new, -len(beside), apart >= away[video], sum(1 / seen.get(number, 1) for number in shown[place]), apart

    def add(wanted: Set[int]) -> None:
        best = max((place for place in shown if place not in chosen and wanted <= shown[place]), key=gain)
        chosen.append(best)
        seen.update(shown[best])

    for wanted in needed:
        if not wanted <= seen.keys():
            add(wanted)
    while len(chosen) < min(count, len(shown)):
        add(frozenset())
    return chosen


def _showing(kinds: Set[frozenset[int]], wanted: Set[int], count: int) -> list[frozenset[int]] | None:
    """What at most `count` frames of these kinds show that together show all that is wanted; None if there are none.

    Tries the kinds that show the rarest class, each with what it leaves to the others.
    """
    if not wanted:
        return []
    kinds = {kind & wanted for kind in kinds}
    if not count or len(wanted) > count * max(map(len, kinds)):
        return None
    rarest = min(sorted(wanted), key=lambda number: sum(number in kind for kind in kinds))
    for kind in sorted((kind for kind in kinds if rarest in kind), key=lambda kind: (-len(kind), sorted(kind))):
        rest = _showing(kinds, wanted - kind, count - 1)
        if rest is not None:
            return [kind, *rest]
    return None


def _together(shown: Mapping[Place, set[int]], places: Iterable[Place]) -> set[int]:
    """The classes that frames show together."""
    return set().union(*(shown[place] for place in places))


def sample_pixels(masks: Sequence[np.ndarray], classes: int) -> Pixels:
    """Equally many pixels of each class, as far as there are so many; the same ones every time."""
    stack = np.stack(masks)
    generator = np.random.default_rng(0)
    present = [number for number in range(classes) if (stack == number).any()]
    each = min(_PER_CLASS, _POINTS // max(1, len(present)))
    chosen = []
    for number in present:
        places = np.argwhere(stack == number)
        chosen.append(places[np.sort(generator.permutation(len(places))[:each])])
    frame, row, column = np.concatenate(chosen).T if chosen else np.zeros((3, 0), int)
    return Pixels(frame, row, column, stack[frame, row, column], stack.shape[1:])


@torch.no_grad()
def pixel_features(
    segmenter: Segmenter, dataset: Dataset, places: Sequence[Place], model: FinishedModel, pixels: Pixels
) -> np.ndarray:
    """Unit-length features of the pixels (N × channels), between the cells of the network's grid as its logits are."""
    device = model.processes.device
    found: list[Tensor] = []
    for number, (name, index) in enumerate(places):
        image = torch.from_numpy(read_scene(dataset[name], index, model.size)).to(device)
        features = segmenter.features(image.permute(2, 0, 1)[None].float() / 255).float()
        here = pixels.frame == number
        # The grid's last cells reach beyond the image where its sides are no multiples of the stride.
        covered = [side * segmenter.stride for side in features.shape[-2:]]
        x, y = (
            (places_along[here] + 0.5) / length * model.size[axis] / covered[axis] * 2 - 1
            for axis, places_along, length in ((1, pixels.column, pixels.size[1]), (0, pixels.row, pixels.size[0]))
        )
        grid = torch.from_numpy(np.stack([x, y], 1))[None, None].float().to(device)
        values = F.grid_sample(features, grid, mode="bilinear", padding_mode="border", align_corners=False)
        found.append(F.normalize(values[0, :, 0].T, dim=1).cpu())
    order = np.argsort(np.concatenate([np.flatnonzero(pixels.frame == number) for number in range(len(places))]))
    return torch.cat(found).numpy()[order]


def _reduced(features: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, float | None]:
    """The features in two dimensions, and how well they keep the classes apart."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.metrics import silhouette_score

    count = len(features)
    separation = None
    if 2 <= len(np.unique(classes)) < count:
        separation = float(silhouette_score(features, classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # features that are all the same, of a network that has learnt nothing
        if features.shape[1] > 50 and count > 50:
            features = PCA(50, random_state=0).fit_transform(features)
        tsne = TSNE(2, perplexity=min(30.0, (count - 1) / 3), init="pca", random_state=0)
        return np.nan_to_num(tsne.fit_transform(features)), separation


def _before_and_after(model: FinishedModel, classes: int, context: Context) -> _Pair | None:
    """What is compared of a run; None where its starting weights cannot be had.

    A contrast stage is compared with the stage before it. Another method's final model is compared with what its first
    stage ended with, or with its starting weights where it has only one stage.
    """
    run = model.run
    description = model.segmenter.describe()
    trained = [(stage, stage.weights) for stage in run.stages if stage.weights]
    for (earlier, before), (stage, after) in pairwise(trained):
        if isinstance(stage.stage, TwoBranches):
            return _Pair(
                f"before and after its {stage.name} stage",
                (f"before {stage.name} (after {earlier.name})", load_model(before, description)),
                (f"after {stage.name}", load_model(after, description)),
            )
    final = "final model", model.segmenter
    if len(trained) > 1:
        first, weights = trained[0]
        about = "after its first stage and at the end"
        return _Pair(about, (f"after {first.name}", load_model(weights, description)), final)
    try:
        start = starting_segmenter(run.config, classes, model.processes)
    except UserError as error:
        said = f"[yellow]The embeddings of {escape(run.name)} are left out:[/yellow] {escape(str(error))}"
        context.console.print(said, highlight=False, soft_wrap=True)
        context.remarks.append(f"The starting weights of {run.name} could not be had: its embeddings are left out.")
        return None
    return _Pair("before and after the training", ("starting weights", start), final)


def _labelled(context: Context, dataset: Dataset) -> dict[str, list[int]]:
    """The labelled frames of the first run whose masks are still there."""
    run = context.first
    return {name: [i for i in run.labelled(name) if i in dataset[name].masks] for name in run.videos("train")}


def _classes_shown(context: Context, dataset: Dataset, frames: Frames) -> dict[Place, set[int]]:
    """The classes that frames show: of some frames, and of all where five of these do not show every class."""
    some = sample(frames, _LOOKED_AT)
    shown = dict(_look(context, dataset, some))
    rest = {name: [i for i in indices if i not in some.get(name, ())] for name, indices in frames.items()}
    if any(rest.values()) and len(_together(shown, covering(shown, FRAMES))) < len(dataset.classes):
        shown |= _look(context, dataset, rest)
    return shown


def _look(context: Context, dataset: Dataset, frames: Frames) -> Iterator[tuple[Place, set[int]]]:
    with bar("look for classes", sum(map(len, frames.values())), context.console) as (progress, task):
        for name, indices in frames.items():
            for index in indices:
                progress.advance(task)
                try:
                    mask = _mask(context, dataset, (name, index))
                except WrongMask:  # of no use here; training and evaluation tell of those that they need
                    continue
                numbers, counts = np.unique(mask, return_counts=True)
                yield (name, index), set(numbers[counts >= _LEAST_PIXELS].tolist()) - {IGNORE}


def _mask(context: Context, dataset: Dataset, place: Place) -> np.ndarray:
    """The class ids of a frame in its view, at the size that the first run computes in."""
    video = dataset[place[0]]
    mask = video.view.crop(dataset.read_mask(video, place[1]))
    return cv2.resize(mask, context.first.config.data.height_width[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
