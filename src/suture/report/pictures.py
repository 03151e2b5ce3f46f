"""Frames with masks over them: which to show, what each run says of them, and how they travel in a page.

A picture is the photo of the scene in the view, once, and any number of masks as run lengths; the page paints them.
What lies outside the view (menus, a patient's name) is never shown.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from rich.console import Console

from suture.data.classes import IGNORE
from suture.data.dataset import Dataset, Video
from suture.evaluation.evaluate import Frames, predict_masks
from suture.evaluation.metrics import confusion, iou, mean, present
from suture.evaluation.protocols import protocol_named
from suture.report.facts import RunFacts
from suture.runs.callbacks import bar
from suture.runs.processes import Processes

SIDE = 320
"""The longer side of a picture in pixels."""
Place = tuple[str, int]
"""Video and index of a frame."""


def sample(frames: Frames, most: int) -> dict[str, list[int]]:
    """At most so many of the frames, evenly over all of them.

    >>> sample({"a": range(6), "b": range(4)}, 5)
    {'a': [0, 2, 4], 'b': [0, 2]}
    """
    places = [(video, index) for video, indices in frames.items() for index in indices]
    count = min(most, len(places))
    chosen: dict[str, list[int]] = {}
    for i in range(count):
        video, index = places[i * len(places) // count]
        chosen.setdefault(video, []).append(index)
    return chosen


def predictions(run: RunFacts, dataset: Dataset, frames: Frames, console: Console) -> dict[Place, np.ndarray]:
    """A finished run's class ids of frames, at native resolution, as its evaluation computes them."""
    evaluation = run.config.evaluation
    processes = Processes.start(run.config.compute.model_copy(update={"accelerator": "auto"}))
    segmenter = run.run.segmenter().to(processes.device).eval()
    found = {}
    with bar(f"predict with {run.name}", sum(map(len, frames.values())), console) as (progress, task):
        for video, indices in frames.items():
            masks = predict_masks(
                segmenter,
                dataset[video],
                indices,
                run.config.data.height_width,
                batch=evaluation.batch,
                flip=evaluation.flip,
                scales=evaluation.scales,
                autocast=processes.autocast(run.config.compute) if processes.device.type == "cuda" else None,
            )
            for index, ids in masks:
                found[video, index] = ids
                progress.advance(task)
    return found


class Judge:
    """The IoU of single frames by the rules of a dataset's protocol."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        names = dataset.classes.names
        self._kept = np.arange(256, dtype=np.uint8)
        self._kept[[names.index(name) for name in protocol_named(dataset.protocol).left_out]] = IGNORE

    def truth(self, place: Place) -> np.ndarray | None:
        """The true class ids of a frame; None where it has no mask."""
        video = self.dataset[place[0]]
        if video.frames[place[1]].mask is None:
            return None
        return self._kept[self.dataset.read_mask(video, place[1])]

    def matrix(self, prediction: np.ndarray, truth: np.ndarray) -> np.ndarray:
        return confusion(np.where(truth == IGNORE, truth, prediction), truth, len(self.dataset.classes))


def frame_iou(matrix: np.ndarray) -> float:
    """Mean IoU over the classes in a frame's truth."""
    return float(mean(np.where(present(matrix), iou(matrix), np.nan)))


def pick(scores: Mapping[Place, Sequence[float]], each: int = 3) -> list[tuple[str, Place]]:
    """The worst, middling and best frames by their mean score, and those on which the runs differ most.

    >>> pick({("a", i): [i / 10] for i in range(10)}, each=1)
    [('worst', ('a', 0)), ('median', ('a', 5)), ('best', ('a', 9))]
    """
    means = {place: float(np.mean(values)) for place, values in scores.items() if not np.isnan(values).any()}
    order = sorted(means, key=lambda place: (means[place], place))
    if len(order) <= 3 * each:
        return [("", place) for place in order]
    middle = (len(order) - each + 1) // 2
    groups = {"worst": order[:each], "median": order[middle : middle + each], "best": order[-each:]}
    chosen = [(group, place) for group, places in groups.items() for place in places]
    taken = {place for _, place in chosen}
    apart = {place: max(scores[place]) - min(scores[place]) for place in order if place not in taken}
    differing = sorted(apart, key=lambda place: (-apart[place], place))[:each]
    return chosen + [("runs differ", place) for place in differing if apart[place] > 0]


@dataclass
class Panel:
    """One of the masks shown of every picture."""

    title: str
    kind: str
    """`truth` or `prediction`."""
    masks: Mapping[Place, np.ndarray]
    scores: Mapping[Place, float] = field(default_factory=dict)


def pictures(
    dataset: Dataset, chosen: Sequence[tuple[str, Place]], panels: Sequence[Panel], notes: Mapping[Place, str]
) -> dict[str, Any]:
    """What the page's viewer needs to show the chosen frames."""
    items = []
    for group, place in chosen:
        name, index = place
        video = dataset[name]
        photo = scene(video, index)
        items.append(
            {
                "group": group,
                "video": name,
                "index": index,
                "note": notes.get(place, ""),
                "photo": data_uri(photo),
                "width": photo.shape[1],
                "height": photo.shape[0],
                "masks": [
                    run_lengths(_small_mask(panel.masks[place], video, photo)) if place in panel.masks else None
                    for panel in panels
                ],
                "scores": [panel.scores.get(place) for panel in panels],
            }
        )
    return {"panels": [{"title": panel.title, "kind": panel.kind} for panel in panels], "items": items}


def scene(video: Video, index: int, side: int = SIDE) -> np.ndarray:
    """The frame in its view, black outside a circle, with this longer side at most."""
    frame = np.where(video.view.mask(*video.size)[..., None], video.read(index), 0).astype(np.uint8)
    return _shrunk(video.view.crop(frame), side, cv2.INTER_AREA)


def _small_mask(ids: np.ndarray, video: Video, photo: np.ndarray) -> np.ndarray:
    return cv2.resize(video.view.crop(ids), photo.shape[1::-1], interpolation=cv2.INTER_NEAREST_EXACT)


def _shrunk(image: np.ndarray, side: int, interpolation: int) -> np.ndarray:
    scale = side / max(image.shape[:2])
    if scale >= 1:
        return image
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    return cv2.resize(image, size, interpolation=interpolation)


def data_uri(rgb: np.ndarray) -> str:
    """An image as WebP inside the page."""
    written, content = cv2.imencode(".webp", rgb[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, 80])
    assert written
    return "data:image/webp;base64," + base64.b64encode(content.tobytes()).decode()


def run_lengths(ids: np.ndarray) -> str:
    """Class ids row by row as runs, each one number in base 36: 256 × length + id.

    >>> run_lengths(np.array([[0, 0, 1]])), int("74", 36), int("e8", 36)
    ('e8 75', 256, 512)
    """
    flat = ids.ravel().astype(np.int64)
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    lengths = np.diff(np.append(starts, flat.size))
    return " ".join(np.base_repr(number, 36).lower() for number in lengths * 256 + flat[starts])
