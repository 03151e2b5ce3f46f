"""The folder of a run: the single truth about it. Who may write there, and what may not change when it goes on."""

import json
import re
import shlex
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from suture.core.errors import UserError
from suture.core.io import (
    check_format,
    lock_folder,
    read_yaml,
    remove_leftovers,
    validate_folder_path,
    write_json,
    write_text,
)
from suture.core.records import STARTS, DataRecord, EnvironmentRecord, MetricsRecord, read_record
from suture.core.text import number
from suture.data.classes import renamed
from suture.data.dataset import Dataset, training_view
from suture.data.listing import holds_files
from suture.models.weight_files import DESCRIPTION, TRAINED_ON, WEIGHTS
from suture.training.config import Config, differences, parse_config, relocated

if TYPE_CHECKING:  # imports torch, which a folder's small files do without
    from suture.models.segmenter import Segmenter
    from suture.models.weights import Model


def default_folder(config: Config) -> Path:
    """Where a run goes if nobody says otherwise."""
    return Path("runs") / f"{config.data.root.resolve().name}-{config.method['name']}-{config.seed}"


class Run:
    """The folder of a run and the files in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    @property
    def config(self) -> Config:
        """The resolved config; data and weights are found relative to the run folder."""
        path = self.folder / "config.yaml"
        if not path.exists():
            lack = "it has no config.yaml" if self.folder.exists() else "there is nothing"
            raise UserError(f"{self.folder} is not a run folder: {lack}.")
        said = read_yaml(path)
        check_format(path, said.get("format"), Config.model_fields["format"].default)
        return parse_config(relocated(said, self.folder, Path()), str(path))

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The scores, once there are any."""
        path = self.folder / "metrics.json"
        return read_record(path, MetricsRecord) if path.exists() else None

    @property
    def has_data(self) -> bool:
        """Whether it has recorded what it learns from."""
        return (self.folder / "data.json").exists()

    @property
    def data(self) -> dict[str, Any]:
        """What a run that was begun learns from."""
        path = self.folder / "data.json"
        if not self.has_data:
            raise UserError(
                f"{self.folder} has no data.json, which says what the run has learnt from: put it back; without it the "
                "run cannot be scored."
            )
        found: dict[str, Any] = read_record(path, DataRecord)
        return found

    def stage_folder(self, number: int, name: str) -> Path:
        """Where a stage keeps its checkpoint, curve and outcome; stages count from 1."""
        return self.folder / "stages" / f"{number}-{name}"

    def is_done(self, number: int, name: str) -> bool:
        """Whether a stage was trained to its end."""
        return (self.stage_folder(number, name) / "done.json").exists()

    def model(self) -> "Model":
        """The finished model, with its class table and size."""
        from suture.models.weights import Model

        return Model.load(self.folder)

    def segmenter(self) -> "Segmenter":
        """The finished model's network."""
        return self.model().segmenter

    def locked(self) -> AbstractContextManager[None]:
        """Keep a second process off this folder."""
        return lock_folder(self.folder)

    def begin(self, config: Config, data: dict[str, Any], machine: dict[str, Any] | None) -> None:
        """Write down config, data and machine before anything starts; refuse to go on if config or data changed.

        Without a machine, none will train: machine and `compute` stay as they are written, as card and tables tell of
        those that did. Where no stage had begun there is nothing to lose: what was mended since may be tried in the
        same folder.
        """
        if self.begun:
            self.require_unchanged(config, data)
        else:
            (self.folder / "shots.json").unlink(missing_ok=True)
        remove_leftovers(self.folder)
        path = self.folder / STARTS  # the first of them: by it the folder is known as a run's
        starts = read_record(path, EnvironmentRecord)["starts"] if path.exists() else []
        written = self.folder / "config.yaml"
        if machine is not None:
            write_json(path, {"starts": [*starts, machine]})
        elif written.exists():
            config = config.model_copy(update={"compute": self.config.compute})
        said = relocated(config.model_dump(mode="json"), Path(), self.folder)
        write_text(written, yaml.safe_dump(said, sort_keys=False, allow_unicode=True))
        write_json(self.folder / "data.json", data)

    def require_free_folder(self) -> None:
        """Refuse a folder that holds files and no run: one of the run's may have the name of one of them."""
        validate_folder_path(self.folder)
        if self.begun or (self.folder / STARTS).exists():
            return
        if holds_files(self.folder):
            raise UserError(
                f"{self.folder} holds files but no run, expected a new or empty folder, or a run to go on with: give "
                "another."
            )

    @property
    def begun(self) -> bool:
        """Whether a stage has begun: its config and data may not change any more."""
        return any(self.folder.glob("stages/*/*"))

    @property
    def finished(self) -> bool:
        """Whether all its stages are done, its model is there, and it is scored."""
        needed = [self.folder / name for name in (WEIGHTS, DESCRIPTION, "metrics.json")]
        # Folders alone: file managers leave files of their own beside them.
        needed += [stage / "done.json" for stage in self.folder.glob("stages/*/")]
        return self.begun and all(file.exists() for file in needed)

    def require_unchanged(self, config: Config, data: Mapping[str, Any]) -> None:
        """Refuse to go on with another config or with other data."""
        self.require_same_config(config)
        self._refuse_other_data(config, data)

    def require_same_config(self, config: Config) -> None:
        """Where a stage has begun, only the same config goes on; how it is scored may be mended until it is."""
        if self.begun and (self.folder / "config.yaml").exists():
            # What it means, not what it says: an earlier version may have said it otherwise.
            before = relocated(self.config.model_dump(mode="json"), Path(), None)
            after = relocated(config.model_dump(mode="json"), Path(), None)
            free = {"compute", "evaluation"} if self._scoring_is_open(config) else {"compute"}
            if changed := differences(_without(before, free), _without(after, free)):
                go_on = shlex.join(["suture", "train", str(self.folder / "config.yaml"), "-o", str(self.folder)])
                raise UserError(
                    f"{self.folder} was begun with another config ({_some(changed)}): "
                    f"to go on as it was begun, {go_on}; for the changed settings, give another folder with -o."
                )

    def _refuse_other_data(self, config: Config, data: Mapping[str, Any]) -> None:
        if not self.has_data:
            return
        free = {"protocol"} if self._scoring_is_open(config) else set[str]()
        if changed := _changed_data(_without(self.data, free), _without(data, free)):
            raise UserError(
                f"{self.folder} was begun with other data ({_some(changed)}): "
                "restore the data to go on, or give another folder."
            )

    def _scoring_is_open(self, config: Config) -> bool:
        """Whether it may still change how the run is scored: nothing is yet, and no weights are chosen by scores."""
        chosen = any(isinstance(stage, Mapping) and stage.get("best_every") for stage in config.method.values())
        return not chosen and not (self.folder / "metrics.json").exists()

    def write_model(self, segmenter: "Segmenter", dataset: Dataset, size: tuple[int, int]) -> None:
        """Write the finished model, and all that a predictor needs to use it."""
        from suture.models.weights import Model

        classes = dataset.classes
        view = training_view(dataset.split("train"))
        noted = json.dumps({"dataset": dataset.name, "view": view, "videos_by": dataset.videos_by})
        Model(segmenter, classes.names, classes.colors, size).save(self.folder, {TRAINED_ON: noted})


def _changed_data(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Lines for all that differs: of class tables the classes that do, of labels how many."""
    then, now = ({one["name"]: one["color"] for one in data["classes"]} for data in (before, after))
    names = renamed(list(then), list(now))
    lines = [f"classes: {names}"] if names else differences({"classes": then}, {"classes": now})
    lines += _changed_labels(before["labelled"], after["labelled"])
    if not names:
        lines += changed_values(before, after["values"])
    told = {"classes": None, "labelled": None, "values": None}
    return lines + differences({**before, **told}, {**after, **told})


def changed_values(data: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """Lines for the values of masks that mean another class than in a run's data; others may have come or gone."""
    both = {value: name for value, name in data.get("values", {}).items() if value in now}
    return differences({"values": both}, {"values": {value: now[value] for value in both}})


def _changed_labels(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    more, fewer = after.keys() - before.keys(), before.keys() - after.keys()
    other = {place for place in after.keys() & before.keys() if after[place] != before[place]}
    told = (
        (more, "more labelled frame", "more labelled frames"),
        (fewer, "labelled frame fewer", "labelled frames fewer"),
        (other, "changed mask", "changed masks"),
    )
    return [f"{number(len(places), *words)}, such as {min(places)}" for places, *words in told if places]


def _without(said: Mapping[str, Any], free: Collection[str]) -> dict[str, Any]:
    """What decides the outcome: a run may go on with more workers or on another device."""
    return {key: value for key, value in said.items() if key not in free}


def _some(changed: list[str], shown: int = 5) -> str:
    """The first few changes, with hashes cut short."""
    text = "; ".join(changed[:shown]) + (f"; and {len(changed) - shown} more" if len(changed) > shown else "")
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1…", text)
