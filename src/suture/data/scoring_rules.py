"""Scoring rules of each dataset's publications; `suture.evaluation.protocols` implements them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from suture.core.errors import UserError
from suture.data import messages


@dataclass(frozen=True)
class Protocol:
    """The rules by which a split is scored.

    The true pixels of a class in `left_out` are ignored and the class has no scores. Without `include_background`, the
    class `background` enters no mean, but its pixels count: what is predicted on them is wrong.
    """

    name: str
    primary: Literal["miou", "miou_frames"] = "miou"
    per_sequence: bool = False
    """Tables show every video beside the overall score."""
    left_out: tuple[str, ...] = ()
    background: str = "background"
    include_background: bool = True
    boundary_tolerance: float | None = 5
    """In pixels of the masks; None where boundaries have no score."""
    minimum_cases: int = 5
    """With fewer test cases, no interval is given."""
    notes: tuple[str, ...] = ()
    """Notes below every table with these scores."""

    def counted(self, names: Sequence[str]) -> list[str]:
        """The classes that enter the means."""
        outside = {*self.left_out, *(() if self.include_background else (self.background,))}
        return [name for name in names if name not in outside]

    def validate_classes(self, names: Sequence[str]) -> None:
        """Raise if these rules do not fit the classes."""
        if missing := [name for name in self.left_out if name not in names]:
            raise UserError(
                f"The protocol in dataset.yaml is {self.name}, which leaves out {', '.join(missing)}, but the classes "
                f"are {', '.join(names)}: {messages.PROTOCOL}."
            )
        if not self.include_background and self.background not in names:
            missing_class = f"no class is called {self.background}"
            raise UserError(f"evaluation.include_background is false, but {missing_class}: set it to true.")
