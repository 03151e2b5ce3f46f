"""Settings: the base class of everything that a file or the command line sets, and limits that several rooms share."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from suture.core.errors import UserError

SCALE_LIMITS = 0.25, 4
"""Smaller frames show a network nothing that it was trained on; larger ones fill the memory."""


class Settings(BaseModel):
    """Base class for settings: frozen, unknown keys rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def validate_scales(scales: Sequence[float], key: str = "scales") -> None:
    """Require scale factors of frames within `SCALE_LIMITS`; `key` is the setting's name for the user."""
    low, high = SCALE_LIMITS
    if not scales or not all(low <= scale <= high for scale in scales):
        raise UserError(f"{key} are {list(scales)}, expected numbers from {low} to {high}.")
