"""The small files of finished runs, for keeping: what the tables are made of, without weights or paths."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from suture.comparison.plan import PLAN
from suture.comparison.queue import TIMES
from suture.comparison.results import damage
from suture.core.errors import UserError
from suture.core.io import read_json, read_yaml, write_json, write_text
from suture.training.config import without_folders

KEPT = ("environment.json", "data.json", "stages/*/done.json", "stages/*/metrics.csv", "metrics.json")
"""The last one says that a run is finished: a copy that was cut off is none."""
_ABSOLUTE = re.compile(r"(~|/|[A-Za-z]:[\\/]|\\\\)\S")


def collect(folder: Path, out: Path, name: str = "*") -> list[str]:
    """Copy the small files of a comparison's finished runs into `out/runs`, and its plan; give the runs' names.

    With a `name`, of that run alone. Damaged runs are left out, so that a whole copy of one stays. Of paths in a config
    only the last part is kept: where the data lay can tell a patient's name, and the data are known by their hashes.
    Any other absolute path is an error. `write_tables(out)` makes the tables again.
    """
    refuse_same(folder, out)
    damaged = {path.parent: damage(path.parent) for path in sorted(folder.glob(f"runs/{name}/metrics.json"))}
    finished = [run for run, why in damaged.items() if why is None]
    if not finished:
        none = f"No folder in {folder / 'runs'} is a finished run, with a metrics.json: there is none to collect."
        raise UserError("\n".join(filter(None, damaged.values())) or none)
    for run in finished:
        target = out / "runs" / run.name
        config = without_folders(read_yaml(run / "config.yaml"))
        _refuse_paths(run / "config.yaml", config)
        write_text(target / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
        for path in _kept(target):
            if not (run / path).exists():  # of a run of that name that was made anew
                (target / path).unlink()
        for path in _kept(run):
            if path.suffix == ".json":
                _refuse_paths(run / path, read_json(run / path))
            write_text(target / path, (run / path).read_text(encoding="utf-8"))
    for file in (PLAN, TIMES):
        if (folder / file).exists():
            write_json(out / file, read_json(folder / file))
    return [run.name for run in finished]


def _kept(run: Path) -> list[Path]:
    """Which files of a run's folder are kept, in order."""
    return [path.relative_to(run) for pattern in KEPT for path in sorted(run.glob(pattern))]


def refuse_same(folder: Path, out: Path) -> None:
    """A run whose config is replaced by the copy to keep would not find its data again."""
    if out.resolve() == folder.resolve():
        raise UserError(f"--collect is {out}, where the runs themselves are: name another folder for what is kept.")


def _refuse_paths(file: Path, value: Any) -> None:
    for place, text in _strings(value):
        if _ABSOLUTE.match(text):
            raise UserError(f"{file}: {place} is {text!r}, a path of this machine, which must not be kept: remove it.")


def _strings(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every string in nested values, with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _strings(one, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _strings(one, f"{place}.{number}")
