"""vocalfolds: laryngeal endoscopic surgery, 2 patients, 8 sequences, 536 frames, all labelled (Laves et al., 2019)."""

import re
from pathlib import Path

from suture.core.errors import UserError
from suture.data.classes import IGNORE, ClassTable
from suture.data.dataset import Dataset, Frame, Split, Video
from suture.data.datasets import source
from suture.data.images import MaskFile
from suture.data.listing import images_of, iterate_folders, last_number, listing

CLASSES = ClassTable(
    ("vocal folds", "other tissue", "glottal space", "pathology", "surgical tool", "intubation"),
    ((204, 121, 167), (230, 159, 0), (0, 114, 178), (240, 228, 66), (86, 180, 233), (0, 158, 115)),
    # 0 is void: what the annotators left undecided.
    {0: IGNORE, 1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5},
)
PATIENTS = {1: (1, 2, 3, 4), 2: (5, 6, 7, 8)}
TEST_SEQUENCES = (2, 4, 7)


def _folder(root: Path) -> Path | None:
    """The folder that holds `img` and `annot`: the root, or one just below it."""
    for folder, folders, _ in iterate_folders(root, depth=1):
        if {"img", "annot"} <= set(folders) and (folder / "img" / "patient1").is_dir():
            return folder
    return None


@source("vocalfolds", matches=lambda root: root.is_dir() and _folder(root) is not None)
def load(root: Path, protocol: str = "sequences", test_patient: int | None = None) -> Dataset:
    """Read `img/patientP/seqS/NNNN[_l].png` (or JPEG) and `annot/…` of the same names.

    `protocol="sequences"` tests on new sequences of known patients: it divides cases on purpose.
    `protocol="patients"` trains on one patient and tests on `test_patient` (2 unless said otherwise).
    """
    if protocol not in ("sequences", "patients"):
        raise UserError(f"vocalfolds has no protocol {protocol!r}: it has sequences and patients.")
    if protocol == "sequences" and test_patient is not None:
        raise UserError("test_patient belongs to vocalfolds' protocol patients: give protocol=patients with it.")
    if test_patient not in (None, *PATIENTS):
        raise UserError(f"test_patient is {test_patient!r}, expected 1 or 2.")
    folder = _folder(root)
    if folder is None:
        raise UserError(f"{root} is not vocalfolds: expected the folders img/patient1/seq1 and annot below it.")

    videos: list[Video] = []
    unmatched: list[str] = []
    for patient in PATIENTS:
        for sequence, images, masks in _sequences(folder, patient):
            if protocol == "sequences":
                split: Split = "test" if sequence in TEST_SEQUENCES else "train"
            else:
                split = "test" if patient == (test_patient or 2) else "train"
            frames = [
                Frame(index, last_number(stem) or 0, image, MaskFile(masks.pop(stem)) if stem in masks else None)
                for index, (stem, image) in enumerate(images.items())
            ]
            unmatched += map(str, masks.values())
            videos.append(Video(f"seq{sequence}", f"patient{patient}", frames, split))

    notes = ["The test sequences are new sequences of known patients."] if protocol == "sequences" else []
    missing = {s for sequences in PATIENTS.values() for s in sequences} - {int(v.id[3:]) for v in videos}
    if missing:
        notes.append(f"Missing: {', '.join(f'seq{sequence}' for sequence in sorted(missing))}.")
    return Dataset(
        "vocalfolds",
        root,
        CLASSES,
        videos,
        protocol=f"vocalfolds-{protocol}",
        divides_cases=protocol == "sequences",
        notes=notes,
        unmatched_masks=unmatched,
    )


def _sequences(folder: Path, patient: int) -> list[tuple[int, dict[str, Path], dict[str, Path]]]:
    """Number, images and masks (by name without suffix) of each of a patient's sequences."""
    place = folder / "img" / f"patient{patient}"
    found = []
    for name in listing(place)[0] if place.is_dir() else ():
        number = re.fullmatch(r"seq([0-9]+)", name)
        if number is None or int(number[1]) not in PATIENTS[patient]:
            expected = ", ".join(f"seq{sequence}" for sequence in PATIENTS[patient])
            raise UserError(f"{place / name} is not a sequence of vocalfolds: patient {patient} has {expected}.")
        masks = folder / "annot" / f"patient{patient}" / name
        images = {stem: place / name / file for stem, file in images_of(place / name).items()}
        annotations = {stem: masks / file for stem, file in images_of(masks).items()} if masks.is_dir() else {}
        found.append((int(number[1]), images, annotations))
    return found
