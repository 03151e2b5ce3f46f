"""Every method, killed in every stage, goes on to the same weights, bit for bit, as if it never had been."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from resume_tester import interrupted, killed, same

from suture.methods.method import methods
from suture.methods.pseudo_labels import PseudoLabels
from suture.training.config import Config
from suture.training.run_folder import Run

STAGES = {
    "propagate": (),
    "twice": ("pretrain", "finetune"),
    "selftraining": ("pretrain", "train"),
    "pgvcl": ("pretrain", "contrast", "finetune"),
    "pixpro": ("pretrain", "propagation", "finetune"),
    "dmt": ("pretrain", "round"),
}
"""Sections with a length, of methods in several stages."""
LIGHT = {
    "pgvcl": ("method.contrast.hidden=16", "method.contrast.channels=8"),
    "pixpro": ("method.propagation.hidden=16", "method.propagation.channels=8"),
    "uamt": ("method.train.passes=2",),
    "dmt": ("method.rates=[0.5, 1.0]",),
}
OFTEN = "compute.checkpoint_every=1"


def places(config: Config, folder: Path) -> Iterator[str]:
    """What each stage writes again and again: its checkpoint, the pseudo labels of video after video."""
    for number, stage in enumerate(config.build_method().stages(), 1):
        if isinstance(stage, PseudoLabels):
            yield f"{stage.folder(Path())}/*.labels.npy"
        else:
            yield f"{Run(folder).stage(number, stage.name).folder.relative_to(folder)}/last.ckpt"


@pytest.mark.parametrize("method", sorted(methods()))
def test_killed_in_every_stage(
    method: str, small: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """With one checkpoint, or the labels of one video, and a second one half-written; in processes for one method."""
    lengths = (
        f"method.{stage}.{length}" for stage in STAGES.get(method, ("train",)) for length in ("steps=3", "batch=4")
    )
    config = small(f"method={method}", *lengths, *LIGHT.get(method, ()), OFTEN)
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    train_quietly(config, whole)
    for place in places(config, folder):
        end = killed if method == "pgvcl" else interrupted
        assert end(config, folder, place, count=2), place
        assert len(list(folder.glob(place))) == 1
    train_quietly(config, folder)
    assert same(whole, folder)


def test_killed_at_whatever_is_being_written(
    pgvcl: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """The first start at its first file, the others at later ones; the last one with its scores."""
    config = pgvcl(OFTEN, "evaluation.completion=true")
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    train_quietly(config, whole)
    for count in (1, 4, 7):
        assert killed(config, folder, "*", count)
    assert killed(config, folder, "metrics.json")
    train_quietly(config, folder)
    assert same(whole, folder)
    assert (whole / "metrics.json").read_text() == (folder / "metrics.json").read_text()
    assert not [path for path in folder.rglob(".*") if path.name != ".lock"], "what kills left behind is removed"
