"""Tables of runs written by hand, against numbers worked out by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
from by_hand import STAGES, scores, texts, write_plan

from suture.comparison.board import Board
from suture.comparison.tables import (
    against_table,
    class_table,
    cost_table,
    paired_table,
    pooled_table,
    score_table,
    tables_of,
)

Write = Callable[..., Path]
Read = Callable[[], Board]
BASELINE = {"train": STAGES["train"] | {"peak_memory": 2 * 2**30}}
THREE_STAGES = {
    "pretrain": {"steps": 50, "batch": 8, "seconds": 30.0, "peak_memory": 2**30, "labels_alone": True},
    "pseudo": {"seconds": 6.0, "frames": 18},
    "contrast": BASELINE["train"]
    | {
        "steps": 70,
        "batch": 4,
        "seconds": 54.0,
        "peak_memory": 3 * 2**30,
        "labels_alone": False,
        "supervised_steps": 0,
    },
    "finetune": {"steps": 50, "batch": 8, "seconds": 30.0, "peak_memory": 2**30, "labels_alone": True},
}


def per_sequence(miou: float, a: float, b: float, completion: float) -> dict:
    return {
        "test": scores(miou, videos={"seqA": a, "seqB": b}, per_sequence=True),
        "completion": scores(completion, per_sequence=True),
    }


@pytest.fixture
def two_methods(write_run: Write) -> None:
    """Two methods, two seeds, every 10th frame labelled, and all labels as the ceiling."""
    for seed, value in ((0, 0.50), (1, 0.54)):
        write_run(f"d__every-10__supervised__seed-{seed}", per_sequence(value, 0.6, 0.4, 0.8), stages=BASELINE)
    for seed, value in ((0, 0.53), (1, 0.53)):
        write_run(f"d__every-10__pgvcl__seed-{seed}", per_sequence(value, 0.5, 0.56, 0.9), stages=THREE_STAGES)
    write_run("d__all__ceiling__seed-0", {"test": per_sequence(0.7, 0.7, 0.7, 0)["test"]}, stages=BASELINE, labelled=20)


@pytest.mark.usefixtures("two_methods")
def test_table_1_shows_every_sequence(read_board: Read) -> None:
    table = score_table(read_board())
    assert table.title == "d (hands): scores (%)"
    assert table.heads == [("", 1), ("", 2), ("Test mIoU", 4), ("Completion mIoU", 2)]
    assert table.columns[3:] == ["Overall", "per frame", "seqA", "seqB", "Overall", "per frame"]
    all_labels, every_10 = table.groups
    assert texts(all_labels) == [["ceiling", "100.0%", "0.0%", *["70.00"] * 4, "–", "–"]]
    # 50 and 54: mean 52, deviation √(2² + 2²) = 2.83; without a plan rows are ordered by name
    test = [
        ["*53.00 ± 0.00", "*53.00 ± 0.00", "50.00 ± 0.00", "*56.00 ± 0.00"],
        ["52.00 ± 2.83", "52.00 ± 2.83", "*60.00 ± 0.00", "40.00 ± 0.00"],
    ]
    assert texts(every_10) == [
        ["pgvcl", "10.0%", "90.0%", *test[0], *["*90.00 ± 0.00"] * 2],
        ["supervised", "10.0%", "0.0%", *test[1], *["80.00 ± 0.00"] * 2],
    ]
    assert table.notes[0] == "Mean ± sample standard deviation over 1 to 2 seeds."


def test_table_2_shows_accuracies(write_run: Write, read_board: Read) -> None:
    for method, value, pa in (("supervised", 0.5, 0.75), ("uamt", 0.6, 0.70), ("dmt", 0.4, 0.75004)):
        metrics = {which: scores(value, pa=pa, pac=0.625) for which in ("test", "val", "completion")}
        write_run(f"d__every-10__{method}__seed-0", metrics)
    table = score_table(read_board())
    assert table.heads == [("", 1), ("", 2), ("Validation", 3), ("Test", 3), ("Completion", 3)]
    assert table.columns[3:] == ["mIoU", "PA", "PAC"] * 3
    # What reads the same is equally good, and a column of equal values has no best.
    assert [row[3:6] for row in texts(table.groups[0])] == [
        ["40.00", "*75.00", "62.50"],
        ["50.00", "*75.00", "62.50"],
        ["*60.00", "70.00", "62.50"],
    ]


def test_primary_score_per_frame(write_run: Write, read_board: Read) -> None:
    for method in ("supervised", "pgvcl"):
        metrics = {"test": scores(0.5, videos={"overall": 0.25}, per_sequence=True, primary="miou_frames")}
        write_run(f"d__every-10__{method}__seed-0", metrics)
    board = read_board()
    table, paired = score_table(board), paired_table(board)
    assert paired is not None
    assert (table.heads[2], table.columns[3:]) == (("Test mIoU per frame", 2), ["Overall", "overall"])
    assert texts(table.groups[0])[0][3:] == ["50.00", "25.00"], "a video may have any name"
    assert paired.heads[1] == ("Test mIoU per frame", 3)


def test_unlabelled_share_and_weights_chosen_by_validation(write_run: Write, read_board: Read) -> None:
    alone = STAGES["train"]
    stages = {
        "supervised": {"train": alone},
        "uamt": {"train": alone | {"labels_alone": False, "unlabelled_batch": 8}},
        "best": {"train": alone | {"best": {"step": 50, "score": 0.6}}},
    }
    for method, done in stages.items():
        write_run(f"d__every-10__{method}__seed-0", {"val": scores(0.6)}, stages=done)
    board = read_board()
    assert "The weights of best were chosen by the validation videos." in score_table(board).notes
    assert {row.title: row.unlabelled for row in board.rows} == {"best": "0.0%", "supervised": "0.0%", "uamt": "90.0%"}


def test_classes_that_a_mean_hides(write_run: Write, read_board: Read) -> None:
    data = {"classes": [{"name": name, "color": [0, 0, 0]} for name in ("tool", "needle", "gauze")]}
    for seed, tool in ((0, 0.9), (1, 0.8)):
        for method, ious in (("supervised", (tool, 0.1, None)), ("pgvcl", (0.5, 0.4, None))):
            classes = dict(zip(("tool", "needle", "gauze"), ious, strict=True))
            write_run(f"d__every-10__{method}__seed-{seed}", {"test": scores(0.5, classes=classes)}, data=data)
    board = read_board()
    table = class_table(board, "test")
    assert table is not None
    assert table.columns == ["Method", "Labelled", "tool", "needle"], "no frame shows gauze"
    assert texts(table.groups[0]) == [
        ["pgvcl", "10.0%", "50.00 ± 0.00", "*40.00 ± 0.00"],
        ["supervised", "10.0%", "*85.00 ± 7.07", "10.00 ± 0.00"],
    ]
    assert table in tables_of(board)


@pytest.mark.usefixtures("two_methods")
def test_paired_differences_seed_by_seed(write_run: Write, read_board: Read) -> None:
    write_run("d__every-10__pgvcl__seed-2", per_sequence(0.9, 0.9, 0.9, 0.9), stages=THREE_STAGES)  # has no pair
    table = paired_table(read_board())
    assert table is not None
    assert table.columns == ["Method", "Labelled", *["per seed", "mean", "wins"] * 2]
    # +3 and −1: mean 1, deviation √(2² + 2²)
    assert texts(table.groups[0]) == [
        [
            *("pgvcl − supervised", "10.0%"),
            *("+3.00, −1.00", "+1.00 ± 2.83", "1 of 2"),
            *("+10.00, +10.00", "+10.00 ± 0.00", "2 of 2"),
        ]
    ]


def test_proposed_method_against_each_other_over_all_labellings(
    tmp_path: Path, write_run: Write, read_board: Read
) -> None:
    names = []
    for labelling, values in {"every-10": (0.50, 0.54), "every-20": (0.40, 0.44)}.items():
        for seed, value in enumerate(values):
            # The proposed one is 2, 4, 6 and 8 points above the control: 5 on average, with a deviation of √(20 / 3).
            gain = 0.02 * (len(names) // 3 + 1)
            for method, score in (("twice", value), ("ours", value + gain), ("other", value + 2 * gain)):
                size = 128 if method == "other" else 64
                metrics = per_sequence(score, 0.5, 0.5, 0.8)
                names.append(write_run(f"d__{labelling}__{method}__seed-{seed}", metrics, size=size).name)
    write_plan(tmp_path, names, reference="twice", proposed="ours")
    board = read_board()
    table, against = pooled_table(board), against_table(board, "ours", "twice")
    assert table is not None
    assert against is not None
    half = 3.18245 * (20 / 3) ** 0.5 / 2  # Student's t with three degrees of freedom
    interval = f"+5.00 [+{5 - half:.2f}, +{5 + half:.2f}]"
    twice, other = texts(table.groups[0])
    assert twice[:3] == ["ours − twice", interval, "4 of 4"]
    assert twice[5:7] == ["0.00 [0.00, 0.00]", "0 of 4"], "in completion"
    assert other[:3] == ["ours − other†", f"−5.00 [−{5 + half:.2f}, −{5 - half:.2f}]", "0 of 4"]
    assert [head for head, _ in against.heads] == ["", "every-10", "every-20", "together"]
    assert texts(against.groups[0])[0][5:] == [interval, "4 of 4"]
    assert [row[0] for row in texts(against.groups[0])][-2:] == ["Test, mIoU of seqB", "Test, mIoU per frame of seqB"]


@pytest.mark.usefixtures("two_methods")
def test_a_method_with_all_labels_meets_every_labelling(read_board: Read) -> None:
    table = against_table(read_board(), "pgvcl", "ceiling")
    assert table is not None
    assert texts(table.groups[0])[0] == ["Test, mIoU", "−17.00", "0 of 1"]
    assert against_table(read_board(), "pgvcl", "nothing") is None


def test_each_point_of_a_swept_proposed_method_meets_each_other_row(
    tmp_path: Path, write_run: Write, read_board: Read
) -> None:
    made = {"twice": 0.5, "ours__P0": 0.6, "ours__P1": 0.7, "both__P0": 0.4, "both__P1": 0.3, "other__P2": 0.2}
    names = [f"d__every-10__{row}__seed-{seed}" for row in made for seed in (0, 1)]
    for name in names:
        write_run(name, {"test": scores(made["__".join(name.split("__")[2:-1])])})
    write_plan(tmp_path, names, reference="twice", proposed="ours")
    table = pooled_table(read_board())
    assert table is not None
    assert [row[:2] for row in texts(table.groups[0])] == [
        [f"ours · {point} − {other}", f"+{gain}.00 [+{gain}.00, +{gain}.00]"]
        for point, gains in {"P0": (10, 20, 30, 40), "P1": (20, 30, 40, 50)}.items()
        for other, gain in zip(("twice", "both · P0", "both · P1", "other · P2"), gains, strict=True)
    ]


def test_intervals_resample_cases_only_with_five_of_them(write_run: Write, read_board: Read) -> None:
    for seed in (0, 1):
        for method, gain in (("supervised", 0.0), ("better", 0.1)):
            cases = {f"c{i}": 0.5 + gain for i in range(5)}
            interval = [0.4 + 0.1 * seed, 0.8]
            metrics = {"test": scores(0.5 + gain, cases=cases, interval=interval), "val": scores(0.5)}
            write_run(f"d__every-10__{method}__seed-{seed}", metrics)
    board = read_board()
    table, paired = score_table(board), paired_table(board)
    assert paired is not None
    assert table.columns[3:] == ["mIoU", "PA", "PAC", "mIoU", "PA", "PAC", "over cases"]
    assert texts(table.groups[0])[0][-1] == "[45.00, 80.00]", "the mean of the two seeds' lower ends, 0.4 and 0.5"
    assert paired.columns[2:] == ["per seed", "mean", "wins", "per seed", "mean", "wins", "over cases"]
    # every case gains the same: however cases are drawn, so does their mean
    assert texts(paired.groups[0])[0][-1] == "+10.00 [+10.00, +10.00]"


@pytest.mark.usefixtures("two_methods")
def test_cost(read_board: Read) -> None:
    pgvcl, supervised = texts(cost_table(read_board()).groups[1])
    assert supervised == ["supervised", "10.0%", "1.0 ± 0.0", "2.0", "13.3 ± 0.0", "train 1.0", "an abacus", "1"]
    # 50·8 + 70·4 + 50·8 frames in 114 s; 120 s with the pseudo labels
    assert pgvcl[2:6] == ["2.0 ± 0.0", "3.0", "9.5 ± 0.0", "pretrain 0.5, pseudo 0.1, contrast 0.9, finetune 0.5"]
