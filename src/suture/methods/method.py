"""Base class of all methods, and lookup by name."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import BaseModel

from suture.core.errors import UserError
from suture.core.settings import Settings
from suture.data.dataset_file import nearest
from suture.methods import METHODS
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import Stage


class Method(ABC):
    """A list of stages, made from settings."""

    Settings: ClassVar[type[BaseModel]] = Settings

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @abstractmethod
    def stages(self) -> Iterator[Stage | PseudoLabels]:
        """Stages in order; each starts from the segmenter of the one before."""


def find_method(name: str) -> type[Method]:
    """Import the method of a name in `METHODS`."""
    if name not in METHODS:
        raise UserError(
            f"method: there is no {name!r}{nearest(name, METHODS)}; the methods are {', '.join(sorted(METHODS))}."
        )
    method: type[Method] = getattr(importlib.import_module(f"suture.methods.{name}"), METHODS[name])
    return method


def methods() -> dict[str, type[Method]]:
    """All methods by name."""
    return {name: find_method(name) for name in METHODS}
