"""The content of `data.json`, and a dataset matched to what a run recorded there."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suture.core.errors import UserError
from suture.core.text import NAMED, listed
from suture.data.dataset import SPLITS, Dataset, Split, Video
from suture.data.fingerprint import Fingerprints
from suture.data.labelling import Labelling
from suture.models.encoder_weights import hub_licence
from suture.models.model_files import fingerprint, is_weights_file
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
    """Give a dataset the names and the split of a run, so that nothing the run was trained on is scored as new.

    A renamed video gets back its name in the run. A case goes where the run had any of its videos, first of all into
    train; a case that is new stays where it is. Notes of the dataset list the changes.

    Args:
        record: Content of `data.json`.
        dataset: The dataset today.
        prints: Fingerprints of its files.
    """
    known = record["videos"]
    same = _same(known, dataset, prints)

    def place(video: Video) -> str:
        return video.id if dataset.divides_cases else video.case

    recorded: dict[str, set[Split | None]] = {}
    for video in dataset:
        recorded.setdefault(place(video), set()).update(known[name]["split"] for name in same[video.id])
    for name in known.keys() - {name for names in same.values() for name in names}:
        recorded.setdefault(name if dataset.divides_cases else known[name]["case"], set()).add(known[name]["split"])

    lost = known.keys() - {video.id for video in dataset}
    videos: list[Video] = []
    changes = []
    for video in dataset:
        name = next((name for name in same[video.id] if name in lost), video.id)
        lost.discard(name)
        split = _first(recorded[place(video)]) or video.split
        renamed = {} if name == video.id else {"id": name, "case": known[name]["case"]}
        videos.append(replace(video, split=split, **renamed))
        # A move from train to val is the work of `data.validation`.
        moved = video.split != split and ("test" in (video.split, split) or video.split == "val")
        joined = _first({known[name]["split"] for name in same[video.id]}) not in (None, split)
        if renamed or moved or joined:
            changes.append(f"{video.id}{f' as {name}' if renamed else ''} in {split}")
    note = f"The dataset has changed since the training, and is scored as it was then: {listed(changes, NAMED)}."
    return replace(dataset, videos=videos, notes=[*dataset.notes, note] if changes else dataset.notes)


def _same(known: Mapping[str, Any], dataset: Dataset, prints: Fingerprints) -> dict[str, list[str]]:
    """Return the recorded names of each video: its own, or those of videos with the same content.

    Only videos with as many frames as another recorded video are hashed.
    """
    lengths = Counter(one["frames"] for one in known.values())
    of_content: dict[str, list[str]] = {}
    for name, one in known.items():
        of_content.setdefault(one["sha256"], []).append(name)
    same = {video.id: [video.id] if video.id in known else [] for video in dataset}
    unsure = [video for video in dataset if lengths[len(video)] > (known.get(video.id, {}).get("frames") == len(video))]
    for video, content in zip(unsure, prints.videos(unsure), strict=True):
        names = of_content.get(content, [])
        if names and video.id not in names:
            if video.id in known:
                raise UserError(
                    f"{dataset.root}: the video {video.id} was {names[0]} in the run's training, and another "
                    f"video was {video.id}: give the videos the names that they had then."
                )
            same[video.id] = names
    return same


def _first(splits: Collection[Split | None]) -> Split | None:
    """Return the split that comes first in `SPLITS`; train is the first of all."""
    return next((split for split in SPLITS if split in splits), None)


def _weights(model: ModelSettings, start: "Segmenter") -> dict[str, Any] | None:
    """Describe the starting weights of the encoder: name, hash, and the stated origin and licence."""
    if model.weights is None:
        return None
    if is_weights_file(model.weights):
        return fingerprint(Path(model.weights)) | {"origin": model.origin, "licence": model.licence}
    digest = hashlib.sha256()
    for name, tensor in sorted(start.encoder.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    licence = model.licence or hub_licence(model.encoder)
    return {"hub": model.weights, "sha256": digest.hexdigest(), "origin": model.origin, "licence": licence}
