"""vocalfolds: laryngeal endoscopic surgery, 2 patients, 8 sequences, 536 frames, all labelled (Laves et al., 2019)."""

from pathlib import Path

from suture.core.errors import UserError
from suture.data.classes import IGNORE, ClassTable
from suture.data.dataset import Dataset, Split, Video
from suture.data.datasets import Source, make_frames
from suture.data.listing import images_of, iterate_folders, last_number, listing
from suture.data.scoring_rules import Protocol

CLASSES = ClassTable(
    ("vocal folds", "other tissue", "glottal space", "pathology", "surgical tool", "intubation"),
    ((204, 121, 167), (230, 159, 0), (0, 114, 178), (240, 228, 66), (86, 180, 233), (0, 158, 115)),
    # 0 is void: undecided by the annotators.
    {0: IGNORE, 1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5},
)
PATIENTS = {1: (1, 2, 3, 4), 2: (5, 6, 7, 8)}
TEST_SEQUENCES = (2, 4, 7)
PROTOCOLS = (
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


def _find_folder(root: Path) -> Path | None:
    """Find the folder that holds `img` and `annot`: the root, or one just below it."""
    for folder, folders, _ in iterate_folders(root, depth=1) if root.is_dir() else ():
        if {"img", "annot"} <= set(folders) and (folder / "img" / "patient1").is_dir():
            return folder
    return None


def load(root: Path, protocol: str = "sequences", test_patient: int | None = None) -> Dataset:
    """Read `img/patientP/seqS/NNNN[_l].png` (or JPEG) and `annot/…` of the same names.

    Args:
        root: The folder with `img` and `annot`, or the one above.
        protocol: `sequences` tests on new sequences of known patients, and divides cases on purpose; `patients` trains
            on one patient and tests on the other.
        test_patient: The test patient of `protocol="patients"`, 1 or 2; by default 2.
    """
    by_sequence = protocol == "sequences"
    if not (by_sequence and test_patient is None) and not (protocol == "patients" and test_patient in (None, 1, 2)):
        raise UserError(
            f"vocalfolds: protocol {protocol!r} with test_patient {test_patient!r}, expected protocol=sequences, or "
            "protocol=patients with a test_patient of 1 or 2."
        )
    folder = _find_folder(root)
    if folder is None:
        raise UserError(f"{root} is not vocalfolds: expected the folders img/patient1/seq1 and annot below it.")
    videos: list[Video] = []
    unmatched: list[str] = []
    for patient, sequences in PATIENTS.items():
        place = folder / "img" / f"patient{patient}"
        for name in listing(place)[0] if place.is_dir() else ():
            if name not in [f"seq{sequence}" for sequence in sequences]:
                expected = ", ".join(f"seq{sequence}" for sequence in sequences)
                raise UserError(f"{place / name} is not a sequence of vocalfolds: patient {patient} has {expected}.")
            annotations = folder / "annot" / place.name / name
            images = images_of(place / name)
            masks = images_of(annotations) if annotations.is_dir() else {}
            numbered = [(last_number(stem) or 0, stem) for stem in images]
            frames = make_frames(numbered, place / name, images, annotations, masks)
            unmatched += [str(annotations / mask) for stem, mask in masks.items() if stem not in images]
            is_test = int(name[3:]) in TEST_SEQUENCES if by_sequence else patient == (test_patient or 2)
            split: Split = "test" if is_test else "train"
            videos.append(Video(name, place.name, frames, split))
    notes = ["The test sequences are new sequences of known patients."] if by_sequence else []
    there = {video.id for video in videos}
    if missing := [f"seq{sequence}" for sequence in range(1, 9) if f"seq{sequence}" not in there]:
        notes.append(f"Missing: {', '.join(missing)}.")
    return Dataset(
        "vocalfolds",
        root,
        CLASSES,
        videos,
        protocol=f"vocalfolds-{protocol}",
        divides_cases=by_sequence,
        notes=notes,
        unmatched_masks=unmatched,
    )


SOURCE = Source(lambda root: _find_folder(root) is not None, load, PROTOCOLS)
