"""The best weights are chosen on validation videos, and only when asked for."""

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from suture.core.errors import UserError
from suture.core.io import read_json
from suture.training.config import Config
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


def test_without_validation_videos_there_is_no_best(dataset: Path, supervised: Make, tmp_path: Path) -> None:
    data = shutil.copytree(dataset, tmp_path / "data")
    described = data / "dataset.yaml"
    described.write_text(described.read_text().replace("  val: [case03]\n", ""))
    with pytest.raises(UserError, match=r"method\.train\.best_every is set, but no validation video of"):
        train(supervised("method.train.best_every=2", f"data.root={data}"), tmp_path / "run", QUIET)
