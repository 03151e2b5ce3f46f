"""Suture: label a few frames, segment every video.

>>> import suture
>>> run = suture.train("videos")  # doctest: +SKIP
>>> for frame, mask in suture.predict(run, "new.mp4"): ...  # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suture.data.dataset import Dataset
    from suture.library import (
        adapt,
        check,
        compare,
        evaluate,
        export,
        load_dataset,
        predict,
        predict_files,
        report,
        select,
        train,
    )
    from suture.methods.method import Method, method
    from suture.prediction.predictor import Predictor
    from suture.training.run_folder import Run

__version__ = "0.1.0"
__all__ = [
    "Dataset",
    "Method",
    "Predictor",
    "Run",
    "adapt",
    "check",
    "compare",
    "evaluate",
    "export",
    "load_dataset",
    "method",
    "predict",
    "predict_files",
    "report",
    "select",
    "train",
]
_CLASSES = {
    "Dataset": "suture.data.dataset",
    "Method": "suture.methods.method",
    "Predictor": "suture.prediction.predictor",
    "Run": "suture.training.run_folder",
    "method": "suture.methods.method",
}
"""The module of each public name that is not in `suture.library`."""


def __getattr__(name: str) -> Any:
    # On first use: every room imports this package, and torch takes seconds.
    if name in __all__:
        return getattr(importlib.import_module(_CLASSES.get(name, "suture.library")), name)
    raise AttributeError(f"module 'suture' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
