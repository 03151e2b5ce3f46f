"""The rules by which each dataset's papers score it; `suture.evaluation.protocols` follows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from suture.core.errors import UserError
from suture.data import messages
from suture.data.dataset_file import nearest


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


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("default"),
        Protocol(
            "endovis18",
            primary="miou_frames",
            per_sequence=True,
            background="background-tissue",
            boundary_tolerance=13,
            notes=("mIoU per frame over the classes in its ground truth, then over frames (the challenge's metric)",),
        ),
        Protocol(
            "cadis",
            boundary_tolerance=9,
            notes=("one confusion matrix over the split; mIoU and PAC over the classes that occur",),
        ),
        Protocol(
            "vocalfolds-sequences",
            per_sequence=True,
            boundary_tolerance=6,
            notes=("new sequences of known patients", "void is ignored"),
        ),
        Protocol(
            "vocalfolds-patients",
            per_sequence=True,
            left_out=("pathology",),
            boundary_tolerance=6,
            notes=("trained on one patient, tested on the other", "void is ignored; pathology (one patient) left out"),
        ),
    )
}


def protocol_named(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        known = f"{', '.join(PROTOCOLS)}{nearest(name, PROTOCOLS)}"
        raise UserError(f"The protocol in dataset.yaml is {name!r}, expected one of {known}: {messages.PROTOCOL}.")
    return PROTOCOLS[name]
