"""Base class of all methods, and lookup by name."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

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


M = TypeVar("M", bound=Method)
_REGISTERED: dict[str, type[Method]] = {}


def method(name: str) -> Callable[[type[M]], type[M]]:
    """Decorate a method of your own, so that a config can name it in the script that defines it.

    >>> @method("mine")
    ... class Mine(Method):
    ...     def stages(self): ...
    """

    def register(kind: type[M]) -> type[M]:
        _REGISTERED[name] = kind
        return kind

    return register


def find_method(name: str) -> type[Method]:
    """Return a registered method, or import the one of a name in `METHODS`."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in METHODS:
        raise UserError(
            f"method: there is no {name!r}{nearest(name, METHODS)}; the methods are {', '.join(sorted(METHODS))}."
        )
    kind: type[Method] = getattr(importlib.import_module(f"suture.methods.{name}"), METHODS[name])
    return kind


def methods() -> dict[str, type[Method]]:
    """All methods by name."""
    return {name: find_method(name) for name in METHODS}
