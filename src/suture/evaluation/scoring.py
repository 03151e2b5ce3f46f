"""Evaluate a segmenter on frames with masks, at the masks' native resolution."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from suture.core.errors import UserError
from suture.core.text import listed
from suture.data import messages
from suture.data.dataset import Dataset, Video
from suture.data.datasets import protocol_named
from suture.data.labelling import Labelling
from suture.data.read_scenes import MaskSource, paste_in_frame, read_scenes
from suture.data.scoring_rules import Protocol
from suture.evaluation.metrics import Scorer
from suture.evaluation.protocols import COMPLETION, SEEN, score, scorer_of
from suture.models.inference import inference_network, predict_probabilities, to_class_ids
from suture.models.segmenter import Segmenter

Frames = Mapping[str, Sequence[int]]
"""Indices by video id."""


def frames_to_score(
    dataset: Dataset, labelling: Labelling, splits: Sequence[str], completion: bool, seen: Collection[str] = ()
) -> dict[str, Frames]:
    """Collect the frames to score: those of the splits with masks, and *completion*.

    Completion is on the unlabelled frames of labelled training videos: how well the rest of a labelled video is filled
    in. It is independent of the scores on new videos, so reports show both. Videos in `seen` are a set of their own:
    training saw their frames, but none of their labels.
    """
    sets: dict[str, Frames] = {
        split: {video.id: video.with_mask for video in dataset.split(split) if video.with_mask}  # type: ignore[arg-type]
        for split in splits
    }
    sets[SEEN] = {video.id: video.with_mask for video in dataset if video.id in seen and video.with_mask}
    if completion:
        labelled = set(labelling)
        rest = {
            video.id: [index for index in video.with_mask if (video.id, index) not in labelled]
            for video in dataset.split("train")
            if labelling[video.id]
        }
        sets[COMPLETION] = {video: indices for video, indices in rest.items() if indices}
    return {name: frames for name, frames in sets.items() if frames}


def predict_masks(
    segmenter: Segmenter,
    video: Video,
    indices: Sequence[int],
    size: tuple[int, int],
    *,
    batch: int = 8,
    flip: Sequence[int] | None = None,
    scales: Sequence[float] = (1.0,),
    autocast: torch.dtype | None = None,
) -> Iterator[tuple[int, Any]]:
    """Predict the masks of frames, in the order of `indices`.

    Yields:
        The index of a frame and its class ids (H, W) at native resolution, `IGNORE` outside the view.
    """
    device = next(segmenter.parameters()).device
    width, height = video.size
    view = video.view
    seen = (min(view.height, height - view.y), min(view.width, width - view.x))  # a stated view may stick out
    network = inference_network(segmenter, size)
    for part, scenes in read_scenes(video, indices, None, batch):
        frames = torch.from_numpy(scenes).to(device)
        probabilities = predict_probabilities(network, frames, size, flip=flip, scales=scales, autocast=autocast)
        for index, one in zip(part, probabilities, strict=True):
            yield index, paste_in_frame(to_class_ids(one[None], seen)[0].cpu().numpy(), video)


def protocol_of(dataset: Dataset, include_background: bool, unlearnt: Sequence[str] = ()) -> Protocol:
    """Protocol of a dataset; `unlearnt` classes, which no training video shows, are left out too."""
    protocol = replace(protocol_named(dataset.protocol), include_background=include_background)
    further = tuple(name for name in unlearnt if name not in protocol.left_out)
    if not further:
        return protocol
    note = f"{listed(further)} left out of validation: no training video shows {'it' if len(further) == 1 else 'them'}"
    return replace(protocol, left_out=protocol.left_out + further, notes=(*protocol.notes, note))


def score_frames(
    dataset: Dataset,
    protocol: Protocol,
    segmenter: Segmenter,
    frames: Frames,
    size: tuple[int, int],
    *,
    masks: MaskSource | None = None,
    progress: Callable[[int], None] = lambda frames: None,
    rank: int = 0,
    world: int = 1,
    **options: Any,
) -> Scorer:
    """Score this process's share of the videos.

    Args:
        masks: Scored instead of the segmenter's masks.
        progress: Called with the number of frames done.
        options: Passed to `predict_masks`.
    """
    scorer = scorer_of(protocol, dataset.classes.names)
    segmenter.eval()
    for place, (name, indices) in enumerate(frames.items()):
        if place % world != rank:
            continue
        video = dataset[name]
        width, height = video.size
        inside = video.view.mask(width, height)
        predicted = masks(video, indices) if masks else predict_masks(segmenter, video, indices, size, **options)
        for index, prediction in predicted:
            truth = dataset.read_mask(video, index)
            if truth.shape != prediction.shape:
                raise UserError(messages.other_size(name, index, (truth.shape[1], truth.shape[0]), (width, height)))
            scorer.add(name, index, prediction, truth, inside)
            progress(1)
    return scorer


def scores(dataset: Dataset, protocol: Protocol, scorer: Scorer) -> dict[str, Any]:
    """Compute the protocol's scores of the frames in a scorer."""
    return score(protocol, scorer, {video.id: video.case for video in dataset})
