"""What README.md and docs/results.md say in short is what the committed runs say.

Each test follows the sentences of a page: a figure is put into the words and these are looked for in the page, and
what the words claim beside it (in every pair, beyond chance, level) is asked of the runs.
"""

import runpy
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from suture.comparison.plan import Place
from suture.comparison.results import read_results, t_interval

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs/results/pairs.py"))

NEW, COMPLETION = "new videos (test), mIoU", "completion, mIoU"
FRAMES = f"{NEW} per frame"
FOUR = (NEW, FRAMES, COMPLETION, f"{COMPLETION} per frame")
PATHOLOGY, OTHERS = "new videos (test), IoU of pathology", f"{NEW} without pathology"
BOTH, EVERY_20, EVERY_10 = "both", "every-20", "every-10"
SEQUENCES = {"seq2": 34, "seq4": 66, "seq7": 122}
"""The frames of each new video."""


@cache
def words(page: str) -> str:
    """A page, bold or not, with single spaces."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").replace("**", "").split())


@cache
def scores(folder: str) -> dict[Place, dict[str, float]]:
    """Of every run, in percent, by the names that pairs.py prints."""
    boards = read_results(ROOT / "docs/results" / folder).boards
    return {run.place: dict(SCRIPT["scores"](run.metrics)) for board in boards for run in board.runs}


def mean(values: Sequence[float]) -> str:
    """As the pages write it; the words around it say which way it goes."""
    return f"{abs(np.mean(values)):.1f}"


def reached(method: str, score: str, labelling: str, dataset: str = "sequences", folder: str = "vocalfolds") -> str:
    """The mean over the seeds."""
    runs = scores(folder).items()
    return mean([of[score] for place, of in runs if place[:3] == (dataset, labelling, method)])


def apart(
    method: str,
    other: str,
    score: str,
    labelling: str = BOTH,
    *,
    dataset: str = "sequences",
    folder: str = "vocalfolds",
    seeds: bool = False,
) -> list[float]:
    """How far the one is above the other, pair by pair, or the mean of each seed over the labellings."""
    runs = scores(folder)
    found = defaultdict(list)
    for place, ours in runs.items():
        theirs = SCRIPT["partner"](place, other, runs)
        wanted = (place.dataset, place.method) == (dataset, method) and labelling in (BOTH, place.labelling)
        if wanted and theirs:
            found[place.seed if seeds else place].append(ours[score] - theirs[score])
    assert found, (method, other, score, labelling)
    return [float(np.mean(values)) for values in found.values()]


def above(values: Sequence[float]) -> bool:
    """Beyond chance: the 95 % interval lies above 0."""
    return t_interval(values)[0] > 0


def level(values: Sequence[float]) -> bool:
    """The 95 % interval holds 0."""
    low, high = t_interval(values)
    return low <= 0 <= high


def share_of_seq4(method: str, other: str) -> float:
    """What its frames have of the gain per frame on new videos."""
    gain = {name: n * np.mean(apart(method, other, f"{FRAMES} of {name}")) for name, n in SEQUENCES.items()}
    return float(gain["seq4"] / sum(gain.values()))


def test_over_the_plain_control() -> None:
    new, new_10 = (apart("stitch", "twice", NEW, place) for place in (EVERY_20, EVERY_10))
    known, known_10 = (apart("stitch", "twice", COMPLETION, place) for place in (EVERY_20, EVERY_10))
    assert (
        f"stitch gains {mean(new)} mIoU with 19 labels and {mean(new_10)} with 34 on new videos, {mean(known)} and "
        f"{mean(known_10)} in completion, with every seed. Most of the gain on new videos is one hard sequence of three"
    ) in words("README.md")
    assert min(new + new_10 + known + known_10) > 0
    assert share_of_seq4("stitch", "twice") > 0.5
    frames, frames_10 = (mean(apart("stitch", "twice", FRAMES, place)) for place in (EVERY_20, EVERY_10))
    assert (
        f"above the plain control `twice` on new videos by {mean(new)} mIoU where every 20th frame is labelled and by "
        f"{mean(new_10)} where every 10th is ({frames} and {frames_10} per frame), and in completion by {mean(known)} "
        f"and {mean(known_10)}."
    ) in words("docs/results.md")


def told(values: Sequence[float]) -> str:
    """With its interval, as the tables write it."""
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(np.mean(values), *t_interval(values))


def without_seq4(other: str, labelling: str = BOTH) -> str:
    """How far stitch is above, per frame on the other new videos."""
    easy = {name: frames for name, frames in SEQUENCES.items() if name != "seq4"}
    each = [apart("stitch", other, f"{FRAMES} of {name}", labelling) for name in easy]
    return told(np.average(each, axis=0, weights=list(easy.values())).tolist())


def test_without_the_hard_sequence_and_over_the_means_of_the_seeds() -> None:
    page = words("docs/results.md")
    peers = ("strong", "unimatch", "pgvcl")
    easy = [without_seq4("twice", EVERY_20), without_seq4("twice", EVERY_10), *map(without_seq4, peers)]
    assert (
        "Without the hard seq4 the lead over `twice` per frame on new videos is {} at every 20th frame and {} at "
        "every 10th, and over all ten pairs {} over `strong`, {} over UniMatch V2 and {} over PGV-CL."
    ).format(*easy) in page
    seeds = [told(apart("stitch", peer, score, seeds=True)) for score in (FRAMES, COMPLETION) for peer in peers]
    assert "per frame {}, {} and {}, in completion {}, {} and {}.".format(*seeds) in page
    assert all(above(apart("stitch", peer, score, seeds=True)) for score in (FRAMES, COMPLETION) for peer in peers)


def test_what_it_reaches() -> None:
    assert (
        f"it reaches {reached('stitch', NEW, EVERY_20)} mIoU on new videos of known patients, where plain supervised "
        f"training reaches {reached('supervised', NEW, EVERY_20)}."
    ) in words("README.md")


def test_what_the_table_of_the_readme_leaves_out() -> None:
    upright = reached("stitch-upright", COMPLETION, EVERY_10)
    assert (
        "The table leaves all of these out; in completion with 34 labels the upright stitch is the best, with "
        f"{upright}."
    ) in words("README.md")
    cells = [(score, place) for score in (NEW, COMPLETION) for place in (EVERY_20, EVERY_10)]
    better = [
        (method, *cell)
        for method in ("strong-upright", "no-unlabelled-upright", "stitch-upright", "dmt-tilted")
        for cell in cells
        if float(reached(method, *cell)) > float(reached("stitch", *cell))
    ]
    assert better == [("stitch-upright", COMPLETION, EVERY_10)]


def test_over_strong_unimatch_and_pgvcl() -> None:
    assert "Over strong, UniMatch V2 and PGV-CL it is ahead over both labellings together, beyond" in words("README.md")
    assert (
        "Over all ten pairs it is above the strong control, UniMatch V2 and PGV-CL in all four scores, each beyond "
        "chance; where every 10th frame is labelled it is level with UniMatch V2, except in the score per frame on new"
    ) in words("docs/results.md")
    assert all(above(apart("stitch", other, score)) for other in ("strong", "unimatch", "pgvcl") for score in FOUR)
    assert [level(apart("stitch", "unimatch", score, EVERY_10)) for score in FOUR] == [True, False, True, True]
    assert (
        "in mIoU it is level with strong on new videos at 19 labels, and with UniMatch V2 on new videos and in "
        "completion at 34."
    ) in words("README.md")
    assert level(apart("stitch", "strong", NEW, EVERY_20))
    upright, unimatch = (
        [float(reached(method, NEW, place)) for place in (EVERY_20, EVERY_10)]
        for method in ("stitch-upright", "unimatch")
    )
    assert (
        f"(`stitch-upright`): it had {upright[0]} and {upright[1]} mIoU on new videos, less than UniMatch V2 at 34 "
        "labels."
    ) in words("README.md")
    assert [one < other for one, other in zip(upright, unimatch, strict=True)] == [False, True]


def test_against_all_labels() -> None:
    assert (
        "With every 10th frame labelled it is also above plain training on all labels, by pathology above all; with "
        "strong augmentation all labels are level with it in mIoU and, without pathology, ahead within chance."
    ) in words("docs/results.md")
    assert all(above(apart("stitch", "all-labels", score, EVERY_10)) for score in (NEW, FRAMES, PATHOLOGY))
    assert level(apart("stitch", "all-labels", OTHERS, EVERY_10))
    assert level(apart("stitch", "all-labels-strong", NEW, EVERY_10))
    assert level(without := apart("stitch", "all-labels-strong", OTHERS, EVERY_10))
    assert np.mean(without) < 0


def test_labelled_and_unlabelled_frames() -> None:
    whole, labelled = apart("stitch", "twice", NEW), apart("no-unlabelled", "twice", NEW)
    tilted = mean(apart("no-unlabelled", "no-unlabelled-upright", NEW))
    new, frames, known = (apart("stitch", "no-unlabelled", score) for score in (NEW, FRAMES, COMPLETION))
    pathology = apart("stitch", "no-unlabelled", PATHOLOGY)
    assert (
        f"(`no-unlabelled`: +{mean(labelled)} of +{mean(whole)}), tilted samples above all (+{tilted}), and most of "
        f"that is one hard sequence of three. Unlabelled frames bring completion, and little on new videos "
        f"(+{mean(new)} mIoU and +{mean(frames)} per frame, just beyond chance), where pathology loses by them."
    ) in words("docs/results.md")
    assert (
        f"The unlabelled ones bring completion (+{mean(known)} over `no-unlabelled`) and a little on new videos "
        f"(+{mean(new)}), where the rare class, pathology, loses {mean(pathology)} IoU by them"
    ) in words("README.md")
    assert share_of_seq4("no-unlabelled", "twice") > 0.5
    assert above(new)
    assert above(frames)
    assert above(known)
    assert above([-one for one in pathology])


def test_pgvcl() -> None:
    known, short, long = (
        apart("pgvcl", "twice", COMPLETION),
        apart("pgvcl", "twice", NEW),
        apart("pgvcl-140", "twice", NEW),
    )
    low, high = (f"{-end:.1f}" for end in reversed(t_interval(long)))
    assert (
        f"PGV-CL is above `twice` in completion by {mean(known)} and does not help on new videos. At the full schedule "
        f"of its paper it is {mean(long)} [{low}, {high}] below there, and in completion worse"
    ) in words("docs/results.md")
    assert above(known)
    assert level(short)
    for paired in (False, True):
        assert above([-one for one in apart("pgvcl-140", "twice", NEW, seeds=paired)])
        assert above([-one for one in apart("pgvcl-140", "pgvcl", COMPLETION, seeds=paired)])


def test_dmt_with_tilted_samples() -> None:
    few, many = (reached("dmt-tilted", NEW, place) for place in (EVERY_20, EVERY_10))
    assert (
        f"With samples tilted alike (three seeds) DMT has {few} and {many} mIoU, much as without, and stays below "
        "stitch"
    ) in words("README.md")
    assert level(apart("dmt-tilted", "dmt", NEW))
    assert all(above(apart("stitch", "dmt-tilted", score)) for score in FOUR)


def test_dmt() -> None:
    assert "Over DMT it is ahead with 19 labels as with 34, with every seed." in words("README.md")
    assert "**Over DMT** it gains in all ten pairs and all four scores." in (ROOT / "docs/results.md").read_text()
    for score in FOUR:
        assert min(apart("stitch", "dmt", score)) > 0
        assert all(above(apart("stitch", "dmt", score, place)) for place in (EVERY_20, EVERY_10))


def test_uamt_and_pixpro() -> None:
    page = words("docs/results.md")
    assert "UA-MT is below plain training in completion: below `supervised`" in page
    assert all(
        above([-one for one in apart("uamt", "supervised", COMPLETION, seeds=paired)]) for paired in (False, True)
    )
    assert all(level(apart("uamt", other, NEW)) for other in ("supervised", "twice"))
    assert "PixPro brings nothing beyond chance over `twice` in the four scores" in page
    assert all(level(apart("pixpro", "twice", score)) for score in FOUR)


def test_a_new_patient() -> None:
    folder = "vocalfolds-patients"
    patients = ("patient-1", "patient-2")
    twice, supervised = (
        [apart("stitch", other, NEW, dataset=patient, folder=folder, seeds=True) for patient in patients]
        for other in ("twice", "supervised")
    )
    assert (
        f"stitch is above `twice` by {mean(twice[0])} (patient 1; over the means of the seeds not beyond chance) and "
        f"{mean(twice[1])} mIoU (patient 2), above `supervised` by {mean(supervised[0])} (not beyond chance) and "
        f"{mean(supervised[1])} (three seeds)"
    ) in words("docs/results.md")
    cells = [(place, patient) for patient in patients for place in (EVERY_20, EVERY_10)]
    ours, theirs = (
        sorted((reached(method, NEW, *cell, folder) for cell in cells), key=float) for method in ("stitch", "twice")
    )
    assert (
        f"stitch has {ours[0]} to {ours[-1]} mIoU, by patient and labels, the plain control {theirs[0]} to "
        f"{theirs[-1]}, and the difference is beyond chance, over the means of the seeds, for one of the two "
        "patients only."
    ) in words("README.md")
    for one, two in (twice, supervised):
        assert level(one)
        assert above(two)
    contrasts = [
        [apart(method, "twice", NEW, dataset=patient, folder=folder) for patient in patients]
        for method in ("pgvcl", "pixpro")
    ]
    (pgvcl, pgvcl_2), (pixpro, pixpro_2) = contrasts
    strong, strong_2 = (
        apart("stitch", "strong", NEW, dataset=patient, folder=folder, seeds=True) for patient in patients
    )
    assert (
        "Most of it is the labelled part's again (`no-unlabelled`); `strong` is level with stitch for patient 1 and "
        f"{mean(strong_2)} below it for patient 2. The peers have three seeds there: PGV-CL and PixPro are "
        f"{mean(pgvcl_2)} and {mean(pixpro_2)} below `twice` for patient 2 and level with it for patient 1; the best "
        "peer in mIoU is UA-MT, by patient 2 alone and over the means of the seeds within chance. UniMatch V2 and DMT "
        "are level with `twice`."
    ) in words("docs/results.md")
    assert (
        "PGV-CL and PixPro are below the plain control for that one, patient 2 (a patient is one case, so that PGV-CL "
        "had no keys of other videos). Strong cannot be told from stitch for patient 1, and is "
        f"{mean(strong_2)} below it for patient 2"
    ) in words("README.md")
    assert level(strong)
    assert np.mean(strong) < 0
    assert above(strong_2)
    for patient, whole in zip(patients, twice, strict=True):
        labelled = apart("no-unlabelled", "twice", NEW, dataset=patient, folder=folder)
        assert np.mean(labelled) > np.mean(whole) / 2
    assert all(level(one) for one in (pgvcl, pixpro))
    assert all(above([-one for one in two]) for two in (pgvcl_2, pixpro_2))
    peers = ("selftraining", "pgvcl", "pixpro", "dmt", "unimatch", "uamt")
    assert max(peers, key=lambda peer: sum(float(reached(peer, NEW, *cell, folder)) for cell in cells)) == "uamt"
    assert all(level(apart("uamt", "twice", NEW, dataset=one, folder=folder, seeds=True)) for one in patients)
    for peer in ("unimatch", "dmt"):
        assert all(level(apart(peer, "twice", NEW, dataset=one, folder=folder)) for one in patients)


def test_with_sam_2() -> None:
    assert (
        "With SAM 2's encoder and 19 labels stitch is level per frame with plain training of R50 on all 314 labels, "
        "but below it in mIoU without pathology; and it is below stitch with R50."
    ) in words("docs/results.md")
    folder = "vocalfolds-sam2"
    assert level(apart("stitch", "all-labels-r50", FRAMES, folder=folder))
    for other, score in (("all-labels-r50", OTHERS), ("stitch-r50", NEW), ("stitch-r50", FRAMES)):
        assert above([-one for one in apart("stitch", other, score, folder=folder)])


def test_at_384() -> None:
    assert "its lead over `twice`, both labellings together, is at least as large as at 256×256" in words(
        "docs/results.md"
    )
    for score in FOUR:
        large = apart("stitch", "twice", score, folder="vocalfolds-384")
        assert np.mean(large) >= np.mean(apart("stitch", "twice", score))


def test_hard_pixels() -> None:
    cost = apart("no-hard-pixels", "stitch", NEW, folder="vocalfolds-ablation")
    assert f"Hard pixels cost {mean(cost)} mIoU on new videos in" in words("README.md")
    assert f"hard pixels, cost {mean(cost)} mIoU on new videos there (three seeds)" in words("docs/results.md")
    assert above(cost)
