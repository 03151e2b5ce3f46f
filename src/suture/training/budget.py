"""What a run was given to learn with, and what it is scored on: where these differ, scores do not compare methods."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suture.core.text import listed, number
from suture.data.store import storage_size
from suture.models import OUTPUT_STRIDES

UNSUPERVISED = ("contrast", "propagation")
"""Stages that learn from no label, in runs made before their `done.json` said so itself."""
LABELS_ALONE = ("supervised", "twice", "strong")
"""Methods that learn from labelled frames alone, in runs made before the `done.json` of their stages said so itself."""
MIXED = ("dmt", "selftraining")
"""Methods with labelled and pseudo-labelled frames in one batch, in runs made before their `done.json` said so."""
Stages = Mapping[str, Mapping[str, Any]]
"""How each stage ended, by its name."""


def effort(config: Mapping[str, Any], data: Mapping[str, Any], stages: Stages) -> dict[str, str]:
    """Of a finished run, by its config as it is written, its `data.json` and its stages: as a reader would say it."""
    model, (height, width) = config["model"], _sides(config)
    return {
        "supervised steps": str(supervised_steps(stages)),
        "batch": " and ".join(map(str, supervised_batches(stages))),
        "architecture": str(model["architecture"]),
        "encoder": str(model["encoder"]),
        "output stride": _output_stride(model),
        "size": f"{height}×{width}",
        "data.store_size": stored_side(config, data),
        "starting weights": _weights(data.get("weights", {"hub": model["weights"]})),
    }


def scored_on(scores: Mapping[str, Any] | None, classes: Sequence[str]) -> str:
    """On how many frames and videos a set's scores rest, and, in short, which these are and what is scored there.

    Which classes are left out is seen from those that have scores: earlier versions do not say it. That a mask was
    mended is seen from the number of each class's true pixels.
    """
    if scores is None:
        return "nothing"
    counts: dict[str, Any] = {
        part: {name: one["frames"] for name, one in scores[part].items()} for part in ("videos", "classes")
    }
    counts["pixels"] = [sum(row) for row in scores.get("confusion") or ()]
    frames, videos = scores["overall"]["frames"], len(scores["videos"])
    left_out = [name for name in classes if name not in scores["classes"]]
    without = f" without {listed(left_out)}" if left_out else ""
    return f"{number(frames, 'frame')} of {number(videos, 'video')}{without} ({digest(counts)})"


def digest(value: Any) -> str:
    """A few letters that tell a value, as JSON has it, from others."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def differing(facts: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """Where facts are not as expected.

    >>> differing({"batch": "8", "size": "128×128"}, {"batch": "8", "size": "256×256"})
    ['size 128×128 instead of 256×256']
    """
    return [f"{fact} {facts[fact]} instead of {other}" for fact, other in expected.items() if facts[fact] != other]


def supervised_steps(stages: Stages) -> int:
    """Optimiser steps that learnt from labels, of the model that is handed on, over all stages.

    A stage that knows better says `supervised_steps` in its `done.json`; of others all steps count, but not those of
    contrast stages.

    >>> supervised_steps({"pretrain": {"steps": 9}, "pseudo": {}, "contrast": {"steps": 7}, "finetune": {"steps": 5}})
    14
    """
    total = 0
    for name, done in stages.items():
        total += done.get("supervised_steps", 0 if name in UNSUPERVISED else done.get("steps", 0))
    return total


def supervised_batches(stages: Stages) -> list[int]:
    """The batches of the supervised steps; several numbers where stages differ."""
    return sorted({done["batch"] for done in _supervised(stages)})


def labels_alone(method: str, stages: Stages) -> bool:
    """Whether a run of a method learnt from labelled frames alone, in every stage that trains.

    >>> labels_alone("new", {"train": {"batch": 8, "labels_alone": True}})
    True
    >>> labels_alone("new", {"train": {"batch": 8, "labels_alone": True}, "more": {"batch": 8, "labels_alone": False}})
    False
    >>> labels_alone("twice", {"pretrain": {"batch": 8}, "finetune": {"batch": 8, "labels_alone": True}})
    True
    """
    said = [done.get("labels_alone") for done in stages.values() if "batch" in done]
    return all(said) if said and None not in said else method in LABELS_ALONE


def mixed_batches(method: str, stages: Stages) -> bool:
    """Whether some supervised steps have pseudo-labelled frames in their batch; an `unlabelled_batch` is beside it.

    >>> mixed_batches("new", {"train": {"steps": 9, "batch": 8, "labels_alone": False}})
    True
    >>> mixed_batches("new", {"train": {"steps": 9, "batch": 8, "labels_alone": False, "unlabelled_batch": 8}})
    False
    >>> mixed_batches("dmt", {"pretrain-a": {"steps": 9, "batch": 8}, "round-1-a": {"steps": 9, "batch": 8}})
    True
    """
    supervised = _supervised(stages)
    if any(done.get("labels_alone") is None for done in supervised):
        return method in MIXED
    return any(not done["labels_alone"] and not done.get("unlabelled_batch") for done in supervised)


def images_of_a_step(stage: Mapping[str, Any]) -> int:
    """What images per second count: the frames in a step's batch, labelled and unlabelled, by a stage's facts.

    >>> images_of_a_step({"batch": 8, "unlabelled_batch": 4})
    12
    """
    images: int = stage["batch"] + stage.get("unlabelled_batch", 0)
    return images


def stored_side(config: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The short side of the largest training frames as stored: as asked for, else by the method's smallest crop; of
    frames that are smaller, their own, as far as the data are known."""
    asked, crops = config["data"].get("store_size"), list(_crops(config["method"]))
    if not asked and not crops:
        return "automatic"
    views = (video["view"] for video in data.get("videos", {}).values() if video["split"] == "train" and video["view"])
    native = max((min(view["rect"][2:]) for view in views), default=None)
    stored = asked or storage_size(min(_sides(config)), min(crops))
    return str(stored if native is None else min(stored, native))


def _supervised(stages: Stages) -> list[Mapping[str, Any]]:
    """The stages that have supervised steps, as they ended."""
    return [done for name, done in stages.items() if "batch" in done and supervised_steps({name: done})]


def _sides(config: Mapping[str, Any]) -> tuple[int, int]:
    size = config["data"]["size"]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return height, width


def _crops(settings: Any) -> Iterator[float]:
    """The smallest crop of every view in the settings of a method."""
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        if key == "crop":
            yield value[0]
        else:
            yield from _crops(value)


def _output_stride(model: Mapping[str, Any]) -> str:
    """As asked for, else the architecture's usual one; one without a choice leaves the encoder as it is."""
    asked, offered = model["output_stride"], OUTPUT_STRIDES.get(model["architecture"])
    return str(asked or (offered[0] if offered else "the encoder's own"))


def _weights(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "random"
    if "hub" in record:
        return str(record["hub"] or "random")
    return f"{record.get('name', 'a file')} ({str(record.get('sha256', ''))[:8]})"
