"""The content of `data.json`, and a dataset matched to what a run recorded there."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suture.core.errors import UserError
from suture.core.text import NAMED, listed
from suture.data.dataset import SPLITS, Dataset, Split
from suture.data.fingerprint import Fingerprints
from suture.data.labelling import Labelling
from suture.models.encoder_weights import hub_licence
from suture.models.model_files import WEIGHTS, fingerprint, is_weights_file
from suture.training.config import Config, ModelSettings

if TYPE_CHECKING:
    from suture.models.segmenter import Segmenter


def data_record(dataset: Dataset, labelling: Labelling, config: Config, start: "Segmenter") -> dict[str, Any]:
    """Make the content of `data.json`: videos, labelled frames, classes and starting weights, without paths.

    Args:
        dataset: All videos; each is listed with case, split, frames, view and SHA-256.
        labelling: Labelled frames; each is listed with the SHA-256 of its mask.
        config: Config of the run.
        start: Segmenter before training, for the hash of its encoder.
    """
    prints = Fingerprints(config.data.cache)
    labelled = [(dataset[video], index) for video, index in labelling]
    hashes = prints.masks([video.masks[index] for video, index in labelled])
    contents = prints.videos(dataset.videos)
    return {
        "dataset": dataset.name,
        "protocol": dataset.protocol,
        "classes": [
            {"name": n, "color": list(c)} for n, c in zip(dataset.classes.names, dataset.classes.colors, strict=True)
        ],
        "videos": {
            video.id: {
                "case": video.case,
                "split": video.split,
                "frames": len(video),
                "excluded": sorted(video.excluded),
                "view": video.view.to_json() if video.split else None,
                "sha256": content,
            }
            | ({"take_every": video.take_every} if video.take_every > 1 else {})
            | ({"masked": video.masked} if video.split == "train" and video.masked else {})
            for video, content in zip(dataset.videos, contents, strict=True)
        },
        "labelled": {f"{video.id}/{index}": sha for (video, index), sha in zip(labelled, hashes, strict=True)},
        "weights": _weights(config.model, start),
        "values": dataset.classes.meanings,
    }


def match_record(record: Mapping[str, Any], dataset: Dataset, prints: Fingerprints) -> Dataset:
    """Give a dataset the split of a run, so that nothing the run was trained on is scored as new.

    A case goes where the run had any of its videos, first of all into train; a case that is new stays where it is.
    Notes of the dataset list the changes.

    Args:
        record: Content of `data.json`.
        dataset: The dataset today.
        prints: Fingerprints of its files.

    Raises:
        UserError: A video has another name than in the run.
    """
    known = record["videos"]
    _require_same_names(known, dataset, prints)
    whole = {video.id: video.id if dataset.divides_cases else video.case for video in dataset}
    recorded: dict[str, set[Split | None]] = {}
    for name, one in known.items():
        recorded.setdefault(whole.get(name, one["case"]), set()).add(one["split"])
    videos = [replace(video, split=_first(recorded.get(whole[video.id], ())) or video.split) for video in dataset]
    # A move from train to val is the work of `data.validation`.
    moved = [
        f"{video.id} in {video.split}"
        for video, before in zip(videos, dataset, strict=True)
        if before.split != video.split and (before.split, video.split) != ("train", "val")
    ]
    note = f"The dataset has changed since the training, and is scored as it was then: {listed(moved, NAMED)}."
    return replace(dataset, videos=videos, notes=[*dataset.notes, note] if moved else dataset.notes)


def _require_same_names(known: Mapping[str, Any], dataset: Dataset, prints: Fingerprints) -> None:
    names: dict[str, list[str]] = {}
    for name, one in known.items():
        names.setdefault(one["sha256"], []).append(name)
    here = {video.id for video in dataset}
    for video, content in zip(dataset, prints.videos(dataset.videos), strict=True):
        before = names.get(content, [video.id])
        if video.id not in before and (video.id in known or here.isdisjoint(before)):  # not merely a copy
            raise UserError(
                f"{dataset.root}: the video {video.id} was {before[0]} in the run's training: give the videos "
                "the names that they had then."
            )


def _first(splits: Collection[Split | None]) -> Split | None:
    """Return the split that comes first in `SPLITS`; train is the first of all."""
    return next((split for split in SPLITS if split in splits), None)


def _weights(model: ModelSettings, start: "Segmenter") -> dict[str, Any] | None:
    """Describe the starting weights, or the run that is trained further: name, hash, stated origin and licence."""
    stated = {"origin": model.origin, "licence": model.licence}
    if model.start is not None:
        return fingerprint(model.start / WEIGHTS) | {"name": model.start.resolve().name} | stated
    if model.weights is None:
        return None
    if is_weights_file(model.weights):
        return fingerprint(Path(model.weights)) | stated
    digest = hashlib.sha256()
    for name, tensor in sorted(start.encoder.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    licence = model.licence or hub_licence(model.encoder)
    return {"hub": model.weights, "sha256": digest.hexdigest(), "origin": model.origin, "licence": licence}
