"""Checks before the first run of a comparison: mistakes that would otherwise show hours later."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from suture.comparison.plan import PlannedRun
from suture.core.errors import UserError
from suture.core.text import number
from suture.methods.stage import Stage
from suture.models.encoder_weights import hub_argument
from suture.models.model_files import is_weights_file
from suture.models.segmenter import Segmenter, build_segmenter
from suture.training.config import Config, ModelSettings


def missing_paths(runs: Sequence[PlannedRun]) -> list[str]:
    """Name each path that runs need and that does not exist."""
    needed = Counter(place for run in runs for place in _paths(run.config))
    return [
        f"{key} is {path}, which does not exist; {number(count, 'run')} to train would need it."
        for (key, path), count in needed.items()
        if not path.exists()
    ]


def unfit_models(runs: Sequence[PlannedRun]) -> dict[str, list[str]]:
    """Return messages of models that cannot be built or do not suit their method, with the runs' names.

    Nothing is downloaded.
    """
    build = cache(_segmenter)
    messages: dict[str, list[str]] = {}
    for run in runs:
        try:
            segmenter = build(run.config.model)
            for stage in run.config.build_method().stages():
                if isinstance(stage, Stage):
                    stage.validate_segmenter(segmenter)
        except UserError as error:
            messages.setdefault(str(error), []).append(run.name)
    return messages


def _paths(config: Config) -> Iterator[tuple[str, Path]]:
    yield "data.root", config.data.root
    if config.data.labelling.list is not None:
        yield "data.labelling.list", config.data.labelling.list
    if config.model.weights is not None and is_weights_file(config.model.weights):
        yield "model.weights", Path(config.model.weights)


def _segmenter(model: ModelSettings) -> Segmenter:
    """Build a segmenter with random weights; the number of classes does not matter here."""
    segmenter = build_segmenter(
        model.architecture,
        model.encoder,
        2,
        model.output_stride,
        layout=model.layout,
        gradient_checkpointing=model.gradient_checkpointing,
    )
    if model.weights is not None and not is_weights_file(model.weights):
        hub_argument(model.encoder, model.weights)
    return segmenter
