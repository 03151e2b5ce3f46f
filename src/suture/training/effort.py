"""Budget of a run, and other facts that two runs must share for their scores to be comparable."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suture.core.text import listed, number
from suture.data.store import storage_size
from suture.models import OUTPUT_STRIDES

Stages = Mapping[str, Mapping[str, Any]]
"""Content of `done.json` of each stage, by the stage's name."""


def effort(config: Mapping[str, Any], data: Mapping[str, Any], stages: Stages) -> dict[str, str]:
    """Describe the budget of a finished run in words.

    Args:
        config: Content of `config.yaml`.
        data: Content of `data.json`.
        stages: Content of `done.json` of each stage.
    """
    model, (height, width) = config["model"], _sides(config)
    return {
        "supervised steps": str(supervised_steps(stages)),
        "batch": " and ".join(map(str, sorted({done["batch"] for done in _supervised(stages)}))),
        "architecture": str(model["architecture"]),
        "encoder": str(model["encoder"]),
        "output stride": _output_stride(model),
        "size": f"{height}×{width}",
        "data.store_size": stored_side(config, data),
        "starting weights": _weights(data["weights"]),
    }


def scored_on(scores: Mapping[str, Any] | None, classes: Sequence[str]) -> str:
    """Describe the frames of a set in words, with a hash of videos, classes and true pixels.

    Args:
        scores: Scores of the set, from `metrics.json`.
        classes: All classes of the dataset.
    """
    if scores is None:
        return "nothing"
    counts: dict[str, Any] = {
        part: {name: one["frames"] for name, one in scores[part].items()} for part in ("videos", "classes")
    }
    counts["pixels"] = [sum(row) for row in scores.get("confusion") or ()]
    left_out = [name for name in classes if name not in scores["classes"]]
    without = f" without {listed(left_out)}" if left_out else ""
    frames, videos = number(scores["overall"]["frames"], "frame"), number(len(scores["videos"]), "video")
    return f"{frames} of {videos}{without} ({digest(counts)})"


def digest(value: Any) -> str:
    """Return a short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def differing(facts: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """List the facts that differ from the expected ones.

    >>> differing({"batch": "8", "size": "128×128"}, {"batch": "8", "size": "256×256"})
    ['size 128×128 instead of 256×256']
    """
    return [f"{fact} {facts[fact]} instead of {other}" for fact, other in expected.items() if facts[fact] != other]


def supervised_steps(stages: Stages) -> int:
    """Count the optimiser steps that taught the final model from labels.

    >>> supervised_steps({"pseudo": {}, "contrast": {"steps": 7, "supervised_steps": 0}, "finetune": {"steps": 5}})
    5
    """
    return sum(done.get("supervised_steps", done.get("steps", 0)) for done in stages.values())


def labels_alone(stages: Stages) -> bool:
    """Test that every training stage learnt from labelled frames alone.

    >>> labels_alone({"train": {"batch": 8, "labels_alone": True}, "more": {"batch": 8, "labels_alone": False}})
    False
    """
    return all(done.get("labels_alone") for done in stages.values() if "batch" in done)


def images_of_a_step(stage: Mapping[str, Any]) -> int:
    """Count the frames in a step's batch, labelled and unlabelled.

    >>> images_of_a_step({"batch": 8, "unlabelled_batch": 4})
    12
    """
    images: int = stage["batch"] + stage.get("unlabelled_batch", 0)
    return images


def stored_side(config: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the short side of the largest stored training frames; `automatic` if the config does not decide it."""
    side, crops = config["data"].get("store_size"), list(_crops(config["method"]))
    if not side and not crops:
        return "automatic"
    views = (video["view"] for video in data.get("videos", {}).values() if video["split"] == "train" and video["view"])
    native = max((min(view["rect"][2:]) for view in views), default=None)
    stored = side or storage_size(min(_sides(config)), min(crops))
    return str(stored if native is None else min(stored, native))


def _supervised(stages: Stages) -> list[Mapping[str, Any]]:
    """Return the stages with supervised steps."""
    return [done for name, done in stages.items() if "batch" in done and supervised_steps({name: done})]


def _sides(config: Mapping[str, Any]) -> tuple[int, int]:
    size = config["data"]["size"]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return height, width


def _crops(settings: Any) -> Iterator[float]:
    """Yield the smallest crop of each view in the settings of a method."""
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        if key == "crop":
            yield value[0]
        else:
            yield from _crops(value)


def _output_stride(model: Mapping[str, Any]) -> str:
    """Return the configured output stride, or the default of the architecture."""
    offered = OUTPUT_STRIDES.get(model["architecture"])
    return str(model["output_stride"] or (offered[0] if offered else "the encoder's own"))


def _weights(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "random"
    return str(record["hub"]) if "hub" in record else f"{record['name']} ({record['sha256'][:8]})"
