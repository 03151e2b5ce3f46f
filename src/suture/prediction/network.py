"""A finished model as a network with its properties."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from suture.data.classes import ClassTable, Raw
from suture.data.dataset import VideosBy
from suture.prediction.input_clip import ClipView


@dataclass(frozen=True)
class Network:
    """A network and its properties."""

    module: nn.Module
    """Maps images (B, 3, h, w) in 0..1 to logits (B, C, h, w)."""
    classes: ClassTable
    size: tuple[int, int]
    """Height and width of its images."""
    device: torch.device
    identity: dict[str, str]
    """Name and SHA-256 of its file."""
    any_size: bool = True
    """It takes images of other sizes too."""
    scored: bool = True
    """It returns scores; otherwise class ids, without confidence."""
    view: ClipView | Literal["auto"] = "auto"
    """View of the frames that it was trained on."""
    videos_by: VideosBy = "folder"
    """Grouping of the images that it was trained on into videos."""
    deinterlace: bool = False
    """Its training deinterlaced the frames."""
    crops: bool = False
    """It crops the view out of whole frames itself."""


def class_table(
    names: tuple[str, ...], colors: tuple[tuple[int, int, int], ...], mirror: Sequence[int] | None
) -> ClassTable:
    """Class table of a model, whose masks hold class ids."""
    values: dict[Raw, int] = {number: number for number in range(len(names))}
    return ClassTable(names, colors, values, mirror=None if mirror is None else tuple(mirror))
