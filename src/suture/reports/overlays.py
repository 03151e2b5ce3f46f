"""Frames with masks over them: which to show, and how they travel in a page.

A picture is the photo of the scene in the view, once, and any number of masks as run lengths; the page paints them.
What lies outside the view (menus, a patient's name) is never shown.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import cv2
import numpy as np

from suture.data.classes import IGNORE
from suture.data.dataset import Dataset, Video, WrongMask
from suture.data.scoring_rules import Protocol
from suture.evaluation.metrics import Scorer
from suture.evaluation.protocols import scorer_of
from suture.evaluation.scoring import Frames, scores
from suture.reports.inference_cache import Place

SIDE = 320
"""The longer side of a picture in pixels."""
WORST, MEDIAN, BEST, DIFFER, NEXT, EVENLY = "worst", "median", "best", "runs differ", "label next", "evenly"
"""Why a frame is shown; `evenly` are those that were chosen without a look at any score."""
_PARTS = 5
"""Frames of one kind lie at least such a part of the video apart."""
_ORDER = (WORST, MEDIAN, BEST, DIFFER, NEXT, EVENLY)


def evenly(count: int, most: int) -> list[int]:
    """At most so many of the places 0 … count − 1, evenly.

    >>> evenly(10, 4)
    [0, 2, 5, 7]
    """
    shown = min(count, most)
    return [i * count // shown for i in range(shown)]


def sample(frames: Frames, most: int) -> dict[str, list[int]]:
    """At most so many of the frames, evenly over all of them.

    >>> sample({"a": range(6), "b": range(4)}, 5)
    {'a': [0, 2, 4], 'b': [0, 2]}
    """
    places = [(video, index) for video, indices in frames.items() for index in indices]
    return by_video(places[i] for i in evenly(len(places), most))


def by_video(places: Iterable[Place]) -> dict[str, list[int]]:
    """Places as indices of each video, in their order.

    >>> by_video([("a", 1), ("b", 0), ("a", 4)])
    {'a': [1, 4], 'b': [0]}
    """
    frames: dict[str, list[int]] = {}
    for video, index in places:
        frames.setdefault(video, []).append(index)
    return frames


class Judge:
    """The scores of some frames by a protocol, without a look at boundaries: no picture tells of them."""

    def __init__(self, dataset: Dataset, protocol: Protocol) -> None:
        self.dataset = dataset
        self.protocol = replace(protocol, boundary_tolerance=None)

    def scorer(self) -> Scorer:
        """One without a frame yet."""
        return scorer_of(self.protocol, self.dataset.classes.names)

    def truth(self, place: Place) -> np.ndarray | None:
        """The true class ids of a frame; None where it has no mask, or one that cannot be used."""
        video = self.dataset[place[0]]
        if video.frames[place[1]].mask is None:
            return None
        try:
            return self.scorer().counted(self.dataset.read_mask(video, place[1]))
        except WrongMask:  # training and evaluation tell of those that they need
            return None

    def truths(self, places: Iterable[Place]) -> dict[Place, np.ndarray]:
        """The true class ids of those frames that have a mask of use."""
        return {place: truth for place in places if (truth := self.truth(place)) is not None}

    def scored(self, place: Place, ids: np.ndarray, truth: np.ndarray | None) -> Scorer:
        """A prediction held against its truth, where that is known."""
        scorer = self.scorer()
        if truth is not None:
            scorer.add(*place, ids, truth)
        return scorer

    def overall(self, scorer: Scorer, score: str) -> float | None:
        """A score of all its frames; None where they have nothing that counts."""
        found: float | None = scores(self.dataset, self.protocol, scorer)["overall"][score]
        return found

    def iou(self, place: Place, ids: np.ndarray, truth: np.ndarray | None) -> float | None:
        """Mean IoU of a prediction over the classes in its truth."""
        return self.overall(self.scored(place, ids, truth), "miou_frames")

    def panel(self, title: str, masks: Mapping[Place, np.ndarray], truths: Mapping[Place, np.ndarray]) -> "Panel":
        """Predicted masks with each frame's IoU, where its truth is known."""
        found = {place: self.iou(place, ids, truths.get(place)) for place, ids in masks.items()}
        return Panel(title, "prediction", masks, {place: iou for place, iou in found.items() if iou is not None})


def pick(scores: Mapping[Place, Sequence[float]], each: int = 3, spread: int = 0) -> dict[Place, list[str]]:
    """The worst, median and best frames by their mean score, those on which the runs differ most, and some evenly.

    Neighbours look almost the same, so of each kind frames of one video lie a fifth of it apart, or as far as they can,
    and of frames on which the runs differ at least half as much as on any, those beside the worst come last. A frame
    may be chosen for several reasons.

    >>> pick({("a", i): [i / 10] for i in range(10)}, each=1, spread=1)
    {('a', 0): ['worst', 'evenly'], ('a', 5): ['median'], ('a', 9): ['best']}
    """
    means = {place: float(np.mean(values)) for place, values in scores.items() if not np.isnan(values).any()}
    order = sorted(means, key=lambda place: (means[place], place))
    in_time = sorted(order)
    if len(order) < 3:
        return {place: [EVENLY] for place in in_time}
    third = len(order) // 3
    middle = sorted(range(third, len(order) - third), key=lambda rank: abs(2 * rank - len(order)))
    differ = {place: max(scores[place]) - min(scores[place]) for place in order}
    least = {video: (indices[-1] - indices[0]) // _PARTS + 1 for video, indices in by_video(in_time).items()}

    def some(candidates: Sequence[Place]) -> list[Place]:
        chosen, near = far_apart(candidates, least, each), least
        while len(chosen) < min(each, len(candidates)):
            near = {video: distance // 2 for video, distance in near.items()}
            chosen = far_apart(candidates, near, each)
        return chosen

    worst = some(order[:third])

    def beside_worst(place: Place) -> bool:
        near = (video == place[0] and abs(place[1] - index) < least[video] for video, index in worst)
        return place not in worst and any(near)

    most = max(differ.values(), default=0)
    differing = sorted(
        (place for place in order if differ[place] > 0),
        key=lambda place: (differ[place] < most / 2, beside_worst(place), -differ[place], place),
    )
    groups = {
        WORST: worst,
        MEDIAN: sorted(some([order[rank] for rank in middle]), key=order.index),
        BEST: some(order[::-1][:third])[::-1],
        DIFFER: some(differing),
        EVENLY: [in_time[i] for i in evenly(len(in_time), spread)],
    }
    chosen: dict[Place, list[str]] = {}
    for group, places in groups.items():
        for place in places:
            chosen.setdefault(place, []).append(group)
    return chosen


def far_apart(order: Iterable[Place], least: Mapping[str, int], count: int) -> list[Place]:
    """The first so many places of an order, those left out that lie nearer to one before them than `least` of a video.

    >>> far_apart([("a", 4), ("a", 5), ("b", 5), ("a", 0)], {"a": 4, "b": 4}, 3)
    [('a', 4), ('b', 5), ('a', 0)]
    """
    chosen: list[Place] = []
    for name, index in order:
        if len(chosen) < count and all(other != name or abs(index - at) >= least[name] for other, at in chosen):
            chosen.append((name, index))
    return chosen


@dataclass
class Panel:
    """One of the masks shown of every picture."""

    title: str
    kind: str
    """`truth` or `prediction`."""
    masks: Mapping[Place, np.ndarray]
    scores: Mapping[Place, float] = field(default_factory=dict)


@dataclass
class Gallery:
    """Chosen frames with the masks over them: what the page's viewer shows, and the figures draw."""

    videos: Mapping[str, Video]
    chosen: Mapping[Place, Sequence[str]]
    """The reasons why each frame was chosen."""
    panels: Sequence[Panel]
    notes: Mapping[Place, str] = field(default_factory=dict)
    among: int = 0
    """Frames among which the worst and best were sought."""

    @property
    def has_truth(self) -> bool:
        return any(panel.kind == "truth" for panel in self.panels)

    @cached_property
    def classes(self) -> list[int]:
        """Those that its masks show."""
        masks = (panel.masks[place] for panel in self.panels for place in self.chosen if place in panel.masks)
        pixels = np.sum([np.bincount(ids.ravel(), minlength=256) for ids in masks], axis=0, initial=0)
        return [number for number in np.flatnonzero(pixels).tolist() if number != IGNORE]

    def group(self, name: str) -> list[Place]:
        """The frames that were chosen for this reason; those chosen evenly as they follow each other."""
        found = [place for place, groups in self.chosen.items() if name in groups]
        return sorted(found) if name == EVENLY else found

    @property
    def groups(self) -> list[str]:
        given = {group for groups in self.chosen.values() for group in groups}
        return [group for group in _ORDER if group in given]

    def content(self) -> dict[str, Any]:
        """The same for the page's script."""
        numbers = {place: number for number, place in enumerate(self.chosen)}
        return {
            "panels": [{"title": panel.title, "kind": panel.kind} for panel in self.panels],
            "items": [self._item(place) for place in self.chosen],
            "groups": {name: [numbers[place] for place in self.group(name)] for name in self.groups},
        }

    def _item(self, place: Place) -> dict[str, Any]:
        name, index = place
        photo = scene(self.videos[name], index)
        masks = [self.mask(panel, place, photo) for panel in self.panels]
        return {
            "groups": list(self.chosen[place]),
            "video": name,
            "index": index,
            "note": self.notes.get(place, ""),
            "photo": data_uri(photo),
            "width": photo.shape[1],
            "height": photo.shape[0],
            "masks": [None if mask is None else run_lengths(mask) for mask in masks],
            "scores": [panel.scores.get(place) for panel in self.panels],
        }

    def mask(self, panel: Panel, place: Place, photo: np.ndarray) -> np.ndarray | None:
        """A panel's class ids of the view, at the size of its photo."""
        ids = panel.masks.get(place)
        return None if ids is None else small_mask(ids, self.videos[place[0]], photo)


def scene(video: Video, index: int, side: int = SIDE) -> np.ndarray:
    """The frame in its view, black outside a circle, with this longer side at most."""
    frame = np.where(video.view.mask(*video.size)[..., None], video.read(index), 0).astype(np.uint8)
    cropped = video.view.crop(frame)
    scale = side / max(cropped.shape[:2])
    if scale >= 1:
        return cropped
    size = (max(1, round(cropped.shape[1] * scale)), max(1, round(cropped.shape[0] * scale)))
    return cv2.resize(cropped, size, interpolation=cv2.INTER_AREA)


def small_mask(ids: np.ndarray, video: Video, photo: np.ndarray) -> np.ndarray:
    """The class ids of a frame cut to the view, at the size of a photo of it."""
    return cv2.resize(video.view.crop(ids), photo.shape[1::-1], interpolation=cv2.INTER_NEAREST_EXACT)


def data_uri(rgb: np.ndarray) -> str:
    """An image as WebP inside the page."""
    written, content = cv2.imencode(".webp", rgb[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, 80])
    assert written
    return embedded(content.tobytes(), "image/webp")


def embedded(content: bytes, kind: str) -> str:
    """A file inside the page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def run_lengths(ids: np.ndarray) -> str:
    """Class ids row by row as runs, each one number in base 36: 256 × length + id.

    >>> run_lengths(np.array([[0, 0, 1]])), int("74", 36), int("e8", 36)
    ('e8 75', 256, 512)
    """
    flat = ids.ravel().astype(np.int64)
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    lengths = np.diff(np.append(starts, flat.size))
    return " ".join(np.base_repr(number, 36).lower() for number in lengths * 256 + flat[starts])
