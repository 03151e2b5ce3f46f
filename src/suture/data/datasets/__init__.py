"""Sources: one file per dataset. Each registers itself by name; nothing else knows how a dataset lies on disk."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suture.core.errors import UserError
from suture.data.dataset import Dataset
from suture.data.dataset_file import FILE_NAME

Loader = Callable[..., Dataset]


@dataclass(frozen=True)
class Source:
    """A dataset that is recognised and read; the loader's keyword arguments are the source's options."""

    name: str
    matches: Callable[[Path], bool]
    load: Loader


_sources: dict[str, Source] = {}


def source(name: str, matches: Callable[[Path], bool]) -> Callable[[Loader], Loader]:
    """Register a loader `(root, **options) -> Dataset` under a name.

    `matches` looks at a folder's layout, cheaply, to say whether it is this dataset.
    """

    def register(load: Loader) -> Loader:
        _sources[name] = Source(name, matches, load)
        return load

    return register


def sources() -> dict[str, Source]:
    """Every known source by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(_sources)


def load_dataset(root: str | Path, source: str = "auto", /, **options: Any) -> Dataset:
    """Open the dataset in a folder; `auto` recognises the known layouts and takes anything else for the user's own.

    >>> load_dataset("vocalfolds", protocol="patients")  # doctest: +SKIP
    """
    root = Path(root)
    if not root.exists():
        raise UserError(f"{root} does not exist: give the folder that holds the dataset.")
    if root.name == FILE_NAME:
        root = root.parent
    known = sources()
    if source == "auto":
        # A dataset.yaml goes before any known layout.
        candidates = [known["folder"], *known.values()]
        chosen = next((candidate for candidate in candidates if candidate.matches(root)), known["folder"])
    elif source in known:
        chosen = known[source]
    else:
        raise UserError(f"There is no source {source!r}; the sources are {', '.join(sorted(known))}.")
    accepted = [name for name in inspect.signature(chosen.load).parameters if name != "root"]
    if unknown := sorted(set(options) - set(accepted)):
        takes = f"takes {', '.join(accepted)}" if accepted else "takes no options"
        raise UserError(f"The source {chosen.name} has no option {unknown[0]!r}: it {takes}.")
    return chosen.load(root, **options)
