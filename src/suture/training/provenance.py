"""What a run leaves behind about its data and its machine, and how it is compared when the run goes on."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import suture
from suture.core.errors import UserError
from suture.core.text import NAMED, listed
from suture.data.dataset import SPLITS, Dataset, Split, Video
from suture.data.fingerprint import Fingerprints
from suture.data.labelling import Labelling
from suture.models.model_files import fingerprint, is_weights_file
from suture.training.config import Config, ModelSettings

if TYPE_CHECKING:
    import torch

    from suture.models.segmenter import Segmenter

PACKAGES = (
    "torch",
    "torchvision",
    "lightning",
    "segmentation-models-pytorch",
    "timm",
    "numpy",
    "opencv-python-headless",
    "av",
)
RUNS_AT_A_TIME = "SUTURE_RUNS_AT_A_TIME"
"""The environment variable in which `suture compare` tells a run how many at most share its device."""


def runs_at_a_time() -> int | None:
    """How many runs share the device at most, as far as that is known."""
    said = os.environ.get(RUNS_AT_A_TIME)
    return int(said) if said else None


def data_record(dataset: Dataset, labelling: Labelling, config: Config, start: "Segmenter") -> dict[str, Any]:
    """Every video with case, split, frame count, view and SHA-256, every labelled frame with its mask's; no paths.

    And what the encoder of `start` was filled with: by name, hash, and the origin and licence that the config states.
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


def as_met(record: Mapping[str, Any], dataset: Dataset, prints: Fingerprints) -> Dataset:
    """The dataset as the run whose `data.json` this is has met it, so that nothing it has learnt from is scored as new.

    A renamed video gets back the name by which the run knows it. A case goes where the run had any of its videos, first
    of all into train; one that the run never met stays where it is today. Notes say what this changes.
    """
    known = record["videos"]
    same = _same(known, dataset, prints)

    def place(video: Video) -> str:
        return video.id if dataset.divides_cases else video.case

    met: dict[str, set[Split | None]] = {}
    for video in dataset:
        met.setdefault(place(video), set()).update(known[name]["split"] for name in same[video.id])
    for name in known.keys() - {name for names in same.values() for name in names}:
        met.setdefault(name if dataset.divides_cases else known[name]["case"], set()).add(known[name]["split"])

    lost = known.keys() - {video.id for video in dataset}
    videos: list[Video] = []
    renamed, moved, joined = [], [], []
    for video in dataset:
        name = next((name for name in same[video.id] if name in lost), video.id)
        lost.discard(name)
        split = _first(met[place(video)]) or video.split
        if name == video.id:
            videos.append(replace(video, split=split))
        else:
            videos.append(replace(video, id=name, case=known[name]["case"], split=split))
            renamed.append(f"{video.id} ({name})")
        # Not from train to val: `data.validation` has done that.
        if video.split != split and ("test" in (video.split, split) or video.split == "val"):
            moved.append(f"{video.case} is in {split}, {f'not in {video.split}' if video.split else 'today in none'}")
        if (own := _first({known[name]["split"] for name in same[video.id]})) not in (None, split):
            joined.append(f"{video.id} is in {split}, not in {own}")
    told = {
        "Renamed since the training, and scored under the names that the run knows": renamed,
        "The split has changed since the training, and the run is scored by its own": moved,
        "Joined to other cases since the training, and scored where the run had those": joined,
    }
    notes = [f"{what}: {listed(list(dict.fromkeys(which)), NAMED)}." for what, which in told.items() if which]
    return replace(dataset, videos=videos, notes=[*dataset.notes, *notes])


def refuse_renamed(record: Mapping[str, Any], dataset: Dataset, prints: Fingerprints) -> None:
    """Where names in `dataset.yaml` are of no video: tell of a video that the run whose `data.json` this is knows by
    its content under another name. By letters alone, another video's name may come nearer."""
    known = record["videos"]
    there = {video.id for video in dataset}
    for video, names in _same(known, dataset, prints).items():
        if video not in known and (lost := [name for name in names if name not in there]):
            raise UserError(
                f"{dataset.root}: the video {video} is the one that the run knows as {lost[0]}: give it back that "
                f"name; or, to score the run, write {video} for {lost[0]} in dataset.yaml and in its masks' names."
            )


def _same(known: Mapping[str, Any], dataset: Dataset, prints: Fingerprints) -> dict[str, list[str]]:
    """The names under which a record has each video of a dataset: its own, or those of its content.

    Hashed are those alone that have as many frames as another video of the record: only they can be that one.
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
                    f"{dataset.root}: the video {video.id} is the one that the run knows as {names[0]}, and another "
                    f"was {video.id} in its training: give the videos back the names that they had then."
                )
            same[video.id] = names
    return same


def _first(splits: Collection[Split | None]) -> Split | None:
    """Of some splits the one that was learnt from, or is nearest to it."""
    return next((split for split in SPLITS if split in splits), None)


def _weights(model: ModelSettings, start: "Segmenter") -> dict[str, Any] | None:
    if model.weights is None:
        return None
    stated = {"origin": model.origin, "licence": model.licence}
    if is_weights_file(model.weights):
        return fingerprint(Path(model.weights)) | stated
    digest = hashlib.sha256()
    for name, tensor in sorted(start.encoder.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return {"hub": model.weights, "sha256": digest.hexdigest()} | stated


def environment(device: "torch.device", precision: str) -> dict[str, Any]:
    """Versions, commit and device, and how many runs share it, as far as that is known."""
    import torch

    return {
        "suture": suture.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": torch.cuda.get_device_name(device) + (" with MPS" if _mps() else "")
        if device.type == "cuda"
        else f"{device.type} ({platform.machine()})",
        "runs_at_a_time": runs_at_a_time(),
        "threads": torch.get_num_threads(),
        "precision": precision,
    }


def _mps() -> bool:
    """Whether NVIDIA's multi-process service computes for several processes at once instead of in turns."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def commit() -> str | None:
    """The commit of the code, with `+` where it was changed; None where it is not a checkout."""
    folder = Path(__file__).resolve().parent
    repository = folder.parents[2]
    stated = repository / "COMMIT"
    if stated.exists():  # a copy without .git says it in a file
        return stated.read_text().strip()
    try:
        top, sha = _git(folder, "rev-parse", "--show-toplevel", "HEAD").splitlines()
        if Path(top).resolve() != repository:  # installed below somebody else's checkout
            return None
        return sha + ("+" if _git(folder, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
