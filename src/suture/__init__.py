"""Suture: label a few frames, segment every video.

>>> import suture
>>> run = suture.train("videos")  # doctest: +SKIP
>>> mask = suture.Predictor(run.folder)(frame)  # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suture.data.dataset import Dataset
    from suture.deploy.predictor import Predictor
    from suture.library import evaluate, load_dataset, train
    from suture.runs.folder import Run

__version__ = "0.1.0"
__all__ = ["Dataset", "Predictor", "Run", "evaluate", "load_dataset", "train"]
_HOMES = {"Dataset": "suture.data.dataset", "Predictor": "suture.deploy.predictor", "Run": "suture.runs.folder"}
"""Where classes are at home; functions are in the library."""


def __getattr__(name: str) -> Any:
    # On first use: every room imports this package, and torch takes seconds.
    if name in __all__:
        return getattr(importlib.import_module(_HOMES.get(name, "suture.library")), name)
    raise AttributeError(f"module 'suture' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
