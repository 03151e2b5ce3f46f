"""The best weights are chosen on validation videos, and only when asked for."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import cv2
import numpy as np
import pytest
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file

from suture.core.errors import UserError
from suture.core.io import read_json
from suture.training.best_weights import BestWeights
from suture.training.config import Config
from suture.training.loop import TrainingLoop
from suture.training.session import Session
from suture.training.train import train

Make = Callable[..., Config]
QUIET = Console(quiet=True)


def test_the_best_of_all_looks_is_handed_on(supervised: Make, tmp_path: Path) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    values = iter([0.2, 0.6, 0.4, 0.3])

    def score(session: Session, segmenter: torch.nn.Module, frames: object, title: str | None = None) -> dict:
        segmenter.eval()
        seen.append({name: tensor.clone() for name, tensor in segmenter.state_dict().items()})
        return {"primary": {"value": next(values)}}

    with patch.object(Session, "score", score):
        train(supervised("method.train.best_every=1"), tmp_path / "run", QUIET)

    folder = tmp_path / "run" / "stages" / "1-train"
    assert read_json(folder / "done.json")["best"] == {"step": 2, "score": 0.6}
    handed_on = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(handed_on[name], tensor) for name, tensor in seen[1].items())
    assert not all(torch.equal(seen[1][name], tensor) for name, tensor in seen[3].items())


def test_looking_changes_nothing_but_the_choice(supervised: Make, tmp_path: Path) -> None:
    train(supervised("method.train.best_every=2"), tmp_path / "best", QUIET)
    train(supervised(), tmp_path / "last", QUIET)

    curve = "stages/1-train/metrics.csv"
    losses = [
        [row.split(",")[:2] for row in (tmp_path / run / curve).read_text().splitlines()] for run in ("best", "last")
    ]
    assert losses[0] == losses[1]
    assert 0 <= read_json(tmp_path / "best" / "stages/1-train/best.json")["score"] <= 1


def test_validation_that_shows_nothing_learnt_is_refused_before_the_training(
    dataset: Path, supervised: Make, tmp_path: Path
) -> None:
    """All that the masks of case02 show is a class that no other training case has."""
    data, cache = shutil.copytree(dataset, tmp_path / "data"), tmp_path / "cache"
    described = data / "dataset.yaml"
    described.write_text(described.read_text().replace("  val: [case03]\n", ""))
    (gauze,) = (one["value"] for one in yaml.safe_load(described.read_text())["classes"] if one["name"] == "gauze")
    masks = sorted((data / "masks").glob("case02__*"))
    for mask in masks:
        cv2.imwrite(str(mask), np.full((64, 64), gauze, np.uint8))
    settings = (f"data.root={data}", f"data.cache={cache}", "data.validation=[case02]", "evaluation.splits=[test]")
    choosing = supervised(*settings, "method.train.best_every=2")
    with pytest.raises(UserError) as caught:
        train(choosing, tmp_path / "run", QUIET)
    assert f"best_every is set, but no validation mask of {data} shows a class that is learnt" in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert not list(cache.glob("frames/*"))
    cv2.imwrite(str(masks[-1]), np.where(np.arange(64) < 32, gauze, 0)[None].repeat(64, 0).astype(np.uint8))
    train(choosing, tmp_path / "run", QUIET)
    assert (tmp_path / "run/stages/1-train/best.json").exists()


def test_without_validation_videos_there_is_no_best(dataset: Path, supervised: Make, tmp_path: Path) -> None:
    data = shutil.copytree(dataset, tmp_path / "data")
    described = data / "dataset.yaml"
    described.write_text(described.read_text().replace("  val: [case03]\n", ""))
    with pytest.raises(UserError, match=r"method\.train\.best_every is set, but no validation mask of"):
        train(supervised("method.train.best_every=2", f"data.root={data}"), tmp_path / "run", QUIET)


@pytest.mark.parametrize(("step", "kept"), [(2, 2), (4, 4), (6, 5)])
@pytest.mark.parametrize("how", ["ignored", "cut off", "gone", "another"])
def test_masks_that_are_changed_during_the_training_cost_no_more_than_a_step(
    how: str,
    step: int,
    kept: int,
    dataset: Path,
    supervised: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the first look, between two, or after the last step; put back, the run ends as if nothing had been."""
    data = shutil.copytree(dataset, tmp_path / "data")
    config = supervised(f"data.root={data}", "method.train.best_every=2", "method.train.steps=6")
    train(config, tmp_path / "whole", QUIET)
    look, masks = BestWeights._compare, sorted((data / "masks").glob("case03__*"))

    def spoil(self: BestWeights, loop: TrainingLoop) -> None:
        for mask in masks if loop.step == step else ():
            if how in ("ignored", "another"):
                cv2.imwrite(str(mask), np.full((64, 64), 255 if how == "ignored" else 1, np.uint8))
            elif how == "cut off":
                mask.write_bytes(mask.read_bytes()[:100])
            else:
                mask.unlink()
        look(self, loop)

    first = {
        "ignored": "show no class that is learnt and scored: put them back, then start the same",
        "cut off": r"case03__frame_0000.*\.png does not decode",
        "gone": r"case03__frame_0000.*\.png cannot be read \(No such file.*",
    }
    later = r"The validation masks changed since method\.train\.best_every began to choose weights"
    told = first.get(how, "") if step == 2 or how == "gone" else later
    with monkeypatch.context() as patches:
        patches.setattr(BestWeights, "_compare", spoil)
        with pytest.raises(UserError, match=told) if told else nullcontext():
            train(config, tmp_path / "run", QUIET)
    if not told:  # none was chosen by the masks of before
        return
    checkpoint = tmp_path / "run/stages/1-train/last.ckpt"
    assert torch.load(checkpoint, weights_only=True)["global_step"] == kept
    if told == later and how == "another":
        with pytest.raises(UserError, match=later):
            train(config, tmp_path / "run", QUIET)
    shutil.copytree(dataset / "masks", data / "masks", dirs_exist_ok=True)
    train(config, tmp_path / "run", QUIET)
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(again[name], tensor) for name, tensor in whole.items())
    best = [read_json(tmp_path / name / "stages/1-train/best.json") for name in ("whole", "run")]
    assert best[0] == best[1]
