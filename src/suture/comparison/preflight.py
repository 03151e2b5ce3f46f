"""What is looked at before the first run of a comparison starts: mistakes that would else show hours later."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from suture.comparison.plan import Planned
from suture.core.errors import UserError
from suture.core.text import listed, number
from suture.methods.stage import Stage
from suture.models.encoder_weights import hub_argument
from suture.models.model_files import is_weights_file
from suture.models.segmenter import Segmenter, build_segmenter
from suture.training.budget import stored_side
from suture.training.config import Config, ModelSettings


def missing_paths(runs: Sequence[Planned]) -> list[str]:
    """A sentence for each path that runs need and that leads nowhere."""
    needed = Counter(place for run in runs for place in _paths(run.config))
    return [
        f"{key} leads to {path}, which does not exist, but {number(count, 'run')} to be trained "
        f"{'needs' if count == 1 else 'need'} it: put it there, or mend the path."
        for (key, path), count in needed.items()
        if not path.exists()
    ]


def unfit(runs: Sequence[Planned]) -> dict[str, list[str]]:
    """Why models cannot be built, or are none for their method, each with the names of the runs; nothing is fetched."""
    of_model: dict[ModelSettings, list[Planned]] = {}
    for run in runs:
        of_model.setdefault(run.config.model, []).append(run)
    found: dict[str, list[str]] = {}
    for model, alike in of_model.items():
        try:
            segmenter = _segmenter(model)
        except UserError as error:
            found.setdefault(str(error), []).extend(run.name for run in alike)
            continue
        for run in alike:
            try:
                for stage in run.config.build_method().stages():
                    if isinstance(stage, Stage):
                        stage.refuse(segmenter)
            except UserError as error:
                found.setdefault(str(error), []).append(run.name)
    return found


def unlike_stores(runs: Sequence[Planned]) -> list[str]:
    """A sentence for each dataset whose frames some methods store larger than others, by which none is the better one.

    How large the frames themselves are is not looked at: that takes long.
    """
    stored: dict[tuple[str, tuple[int, int]], dict[str, list[str]]] = {}
    for run in runs:
        sides = stored.setdefault((run.place.dataset, run.config.data.height_width), {})
        sides.setdefault(stored_side(run.config.model_dump(mode="json"), {}), []).append(run.place.method)
    found = []
    for (dataset, _), sides in stored.items():
        if len(sides) > 1:
            told = [f"{side} ({', '.join(dict.fromkeys(methods))})" for side, methods in sides.items()]
            found.append(
                f"{dataset}: frames are stored with a short side of {listed(told)}, where they are not smaller "
                "themselves; the tables mark such rows as not comparable: to compare them, state one data.store_size "
                "for all."
            )
    return found


def _paths(config: Config) -> Iterator[tuple[str, Path]]:
    yield "data.root", config.data.root
    if config.data.labelling.list is not None:
        yield "data.labelling.list", config.data.labelling.list
    if config.model.weights is not None and is_weights_file(config.model.weights):
        yield "model.weights", Path(config.model.weights)


def _segmenter(model: ModelSettings) -> Segmenter:
    """The segmenter with random weights: how many classes it has does not matter here."""
    segmenter = build_segmenter(model.architecture, model.encoder, 2, model.output_stride, layout=model.layout)
    if model.weights is not None and not is_weights_file(model.weights):
        hub_argument(model.encoder, model.weights)
    return segmenter
