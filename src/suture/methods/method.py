"""A method is a list of stages. Each method is one file that registers its class by name."""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from pydantic import BaseModel

from suture.core.errors import UserError
from suture.core.settings import Settings
from suture.data.dataset_file import nearest
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import Stage


class Method(ABC):
    """Base of all methods: a `Settings` class and the stages they make."""

    name: ClassVar[str]
    Settings: ClassVar[type[BaseModel]] = Settings

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @abstractmethod
    def stages(self) -> Iterator[Stage | PseudoLabels]:
        """The stages in order; each starts from the segmenter that the one before left."""


_methods: dict[str, type[Method]] = {}


def method(name: str) -> Callable[[type[Method]], type[Method]]:
    """Register a method under a name."""

    def register(cls: type[Method]) -> type[Method]:
        cls.name = name
        _methods[name] = cls
        return cls

    return register


def methods() -> dict[str, type[Method]]:
    """Every known method by name."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    return dict(_methods)


def find_method(name: str) -> type[Method]:
    """The method of a name."""
    known = methods()
    if name not in known:
        raise UserError(
            f"method: there is no {name!r}{nearest(name, known)}; the methods are {', '.join(sorted(known))}."
        )
    return known[name]
