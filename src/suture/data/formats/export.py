"""Base class of exports of annotation tools, which give masks by the names of their frames."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suture.data.classes import Raw
from suture.data.dataset import Boxes, Mask


@dataclass(frozen=True)
class Export(ABC):
    """Labels, and frames with masks, as a tool exported them."""

    path: Path
    """The zip, folder or file."""
    labels: Mapping[str, Raw]
    """The tool's labels, each with the tool's own colour or id."""
    members: Mapping[str, Any]
    """The source of each mask by the name of its frame: a path with slashes, without suffix."""
    notes: list[str] = field(default_factory=list)
    """Remarks for the user."""
    boxes: list[Boxes] = field(default_factory=list)
    """Files with annotations that are left out because they have no shape."""

    @property
    def frames(self) -> list[str]:
        """Names of the frames with a mask."""
        return list(self.members)

    @abstractmethod
    def mask(self, frame: str, label_ids: Mapping[str, int], annotated: tuple[str, ...] | None) -> Mask:
        """Return the mask of a frame; `label_ids` are the class table's ids of the labels."""
