"""Adapt: train a finished run further, with its labels and the unlabelled frames of new videos."""

from collections.abc import Sequence
from pathlib import Path

from suture.training.config import DEFAULT_METHOD, Config, merge, parse_config, set_value
from suture.training.run_folder import Run

ADAPT_STEPS = 500
"""Default length in steps: a quarter of a training."""


def adapted_folder(run: Run) -> Path:
    """Default folder of the adapted run, beside the other."""
    return run.folder.with_name(f"{run.name}-adapted")


def adapt_config(run: Run, videos: Sequence[Path], overrides: Sequence[str] = (), origin: str = "settings") -> Config:
    """Make the config that goes on from a run's final model, by stitch.

    Args:
        run: A finished run.
        videos: Files, or folders of videos or frames. Labels that they may have are not read.
        overrides: Further settings as `KEY=VALUE`.
        origin: Source of the overrides, for messages.
    """
    own = run.config.model_dump(mode="json")
    if own["method"]["name"] != DEFAULT_METHOD:
        own["method"] = {"name": DEFAULT_METHOD}
    unlabelled = [*own["data"]["unlabelled"], *map(str, videos)]
    settings = merge(
        own,
        {
            "method": {"train": {"steps": ADAPT_STEPS}},
            "data": {"unlabelled": unlabelled},
            "model": {"start": str(run.folder)},
        },
    )
    for override in overrides:
        set_value(settings, override, origin)
    return parse_config(settings, origin)
