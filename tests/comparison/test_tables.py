"""Tables of runs written by hand, against numbers worked out by hand."""

import csv
import io
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from by_hand import scores
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from rich.console import Console

from suture.comparison.compare import print_scores, show_tables, write_tables
from suture.comparison.plots import BESIDE, SWEPT, _dots, pictures
from suture.comparison.render import latex, markdown
from suture.comparison.results import read_results
from suture.comparison.tables import (
    class_table,
    cost_table,
    interval_table,
    paired_table,
    pooled_table,
    score_table,
    tables_of,
)
from suture.core.errors import UserError
from suture.core.io import read_json, write_json
from suture.training.budget import supervised_steps

Write = Callable[..., Path]
BASELINE = {"train": {"steps": 100, "batch": 8, "seconds": 60.0, "peak_memory": 2 * 2**30}}
THREE_STAGES = {
    "pretrain": {"steps": 50, "batch": 8, "seconds": 30.0, "peak_memory": 2**30},
    "pseudo": {"seconds": 6.0, "frames": 18},
    "contrast": {"steps": 70, "batch": 4, "seconds": 54.0, "peak_memory": 3 * 2**30},
    "finetune": {"steps": 50, "batch": 8, "seconds": 30.0, "peak_memory": 2**30},
}


def per_sequence(miou: float, a: float, b: float, completion: float) -> dict:
    return {
        "test": scores(miou, videos={"seqA": a, "seqB": b}, per_sequence=True),
        "completion": scores(completion, per_sequence=True),
    }


def two_methods(write_run: Write) -> None:
    """Two methods, two seeds, every 10th frame labelled, and all labels as the ceiling."""
    for seed, value in ((0, 0.50), (1, 0.54)):
        write_run(f"d__every-10__supervised__seed-{seed}", per_sequence(value, 0.6, 0.4, 0.8), stages=BASELINE)
    for seed, value in ((0, 0.53), (1, 0.53)):
        write_run(f"d__every-10__pgvcl__seed-{seed}", per_sequence(value, 0.5, 0.56, 0.9), stages=THREE_STAGES)
    write_run("d__all__ceiling__seed-0", per_sequence(0.7, 0.7, 0.7, 0.8), stages=BASELINE, labelled=20)


def texts(rows: list) -> list[list[str]]:
    return [[("*" if cell.bold else "") + cell.text + cell.mark for cell in row] for row in rows]


def test_a_protocol_per_sequence_gives_the_shape_of_table_1(tmp_path: Path, write_run: Write) -> None:
    two_methods(write_run)
    (board,) = read_results(tmp_path).boards
    table = score_table(board)
    assert table.title == "d (hands): scores (%)"
    assert table.heads == [("", 1), ("Frames used", 2), ("Test mIoU", 4), ("Completion mIoU", 2)]
    assert table.columns[3:] == ["Overall", "per frame", "seqA", "seqB", "Overall", "per frame"]
    all_labels, every_10 = table.groups
    (ceiling,) = texts(all_labels)
    assert ceiling == ["ceiling (1 of 2 seeds)", "100.0%", "0.0%", *["70.00"] * 4, *["80.00"] * 2]
    # 50 and 54: mean 52, deviation √(2² + 2²) = 2.83; without a plan rows are ordered by name
    test = [
        ["*53.00 ± 0.00", "*53.00 ± 0.00", "50.00 ± 0.00", "*56.00 ± 0.00"],
        ["52.00 ± 2.83", "52.00 ± 2.83", "*60.00 ± 0.00", "40.00 ± 0.00"],
    ]
    assert texts(every_10) == [
        ["pgvcl", "10.0%", "90.0%", *test[0], *["*90.00 ± 0.00"] * 2],
        ["supervised", "10.0%", "0.0%", *test[1], *["80.00 ± 0.00"] * 2],  # it learns from no unlabelled frame
    ]
    notes = "\n".join(table.notes)
    assert "scored by hand" in notes
    assert "With fewer than three seeds, a difference may be chance." in notes
    assert "fewer than five cases (test has 1, completion has 1)" in notes
    assert "Test: new videos; completion: the unlabelled frames" in notes
    assert "Of a single sequence, a class that it lacks counts as 0" in notes
    assert "mean over classes; mIoU per frame: intersection over union in each frame, mean over the classes" in notes
    assert "per frame" not in "\n".join(score_table(board, "primary").notes)
    assert interval_table(board) is None


def test_a_protocol_whose_score_is_per_frame_says_so(tmp_path: Path, write_run: Write) -> None:
    for method in ("supervised", "pgvcl"):
        metrics = {"test": scores(0.5, videos={"seqA": 0.5}, per_sequence=True, primary="miou_frames")}
        write_run(f"d__every-10__{method}__seed-0", metrics)
    (board,) = read_results(tmp_path).boards
    table, paired = score_table(board), paired_table(board)
    assert paired is not None
    assert (table.heads[2], table.columns[3:]) == (("Test mIoU per frame", 2), ["Overall", "seqA"])
    assert paired.heads[1] == ("Test mIoU per frame", 3)
    assert paired.notes[0].startswith("Difference of the overall mIoU per frame in percent points")


def test_a_video_called_as_the_whole_set_is_not_taken_for_it(tmp_path: Path, write_run: Write) -> None:
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5, videos={"overall": 0.25}, per_sequence=True)})
    (board,) = read_results(tmp_path).boards
    table = score_table(board)
    assert table.columns[3:] == ["Overall", "per frame", "overall"]
    assert texts(table.groups[0]) == [["supervised", "10.0%", "0.0%", "50.00", "50.00", "25.00"]]


def test_completion_is_explained_only_where_it_is(tmp_path: Path, write_run: Write) -> None:
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)})
    write_run("d__every-10__pgvcl__seed-0", {"test": scores(0.6)})
    (board,) = read_results(tmp_path).boards
    assert not any("ompletion" in note for table in tables_of(board) for note in table.notes)


def test_rows_of_all_labels_say_why_they_have_no_completion(tmp_path: Path, write_run: Write) -> None:
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5), "completion": scores(0.6)})
    (board,) = read_results(tmp_path).boards
    why = "No completion with all labels: every frame with a mask is learnt from, so none is left to score."
    assert why not in score_table(board).notes
    write_run("d__all__supervised__seed-0", {"test": scores(0.5)})
    (board,) = read_results(tmp_path).boards
    assert why in score_table(board).notes


def test_other_protocols_give_the_shape_of_table_2(tmp_path: Path, write_run: Write) -> None:
    for method, value, pa in (("supervised", 0.5, 0.75), ("uamt", 0.6, 0.70), ("dmt", 0.4, 0.75004)):
        metrics = {which: scores(value, pa=pa, pac=0.625) for which in ("test", "val", "completion")}
        write_run(f"d__every-10__{method}__seed-0", metrics)
    table = score_table(read_results(tmp_path).boards[0])
    assert table.heads == [("", 1), ("Frames used", 2), ("Validation", 3), ("Test", 3), ("Completion", 3)]
    assert table.columns[3:] == ["mIoU", "PA", "PAC"] * 3
    assert "; PA: pixel accuracy, the share of pixels that are right; PAC: the share of a class's pixels" in "\n".join(
        table.notes
    )
    # What reads the same is equally good, and where all are there is no best.
    assert [row[3:6] for row in texts(table.groups[0])] == [
        ["40.00", "*75.00", "62.50"],
        ["50.00", "*75.00", "62.50"],
        ["*60.00", "70.00", "62.50"],
    ]


def test_rows_whose_batches_are_labelled_in_part_are_named(tmp_path: Path, write_run: Write) -> None:
    """By what their stages say, or by the method where these are of an earlier version."""
    pretrain = {"steps": 50, "batch": 8, "seconds": 30.0, "labels_alone": True}
    rounds = pretrain | {"labels_alone": False}
    stages = {
        "supervised": {"train": pretrain | {"steps": 100}},
        "uamt": {"train": rounds | {"steps": 100, "unlabelled_batch": 8}},
        "pgvcl": {"pretrain": pretrain, "contrast": rounds | {"supervised_steps": 0}, "finetune": pretrain},
        "mine": {"pretrain-a": pretrain, "round-1-b": rounds | {"supervised_steps": 0}, "round-1-a": rounds},
    }
    earlier = {"twice": THREE_STAGES, "dmt": THREE_STAGES, "selftraining": THREE_STAGES}
    for method, done in (stages | earlier).items():
        write_run(f"d__every-10__{method}__seed-0", {"test": scores(0.5)}, stages=done)
    (board,) = read_results(tmp_path).boards
    assert [row.title for row in board.rows if row.mark] == []
    (note,) = [note for note in score_table(board).notes if "pseudo labels" in note]
    assert note.startswith(
        "In some supervised steps of dmt, mine and selftraining, a part of the batch are frames with"
    )


def test_rows_whose_weights_were_chosen_by_validation_are_named(tmp_path: Path, write_run: Write) -> None:
    for seed, best in enumerate(({"step": 50, "score": 0.6}, None)):
        stages = {"train": BASELINE["train"] | ({"best": best} if best else {})}
        metrics = {"val": scores(0.6), "test": scores(0.5)}
        write_run(f"d__every-10__best__seed-{seed}", metrics, stages=stages)
        write_run(f"d__every-10__supervised__seed-{seed}", metrics)
    (board,) = read_results(tmp_path).boards
    (note,) = [note for note in score_table(board).notes if "best_every" in note]
    assert note.startswith("The weights of best were chosen by the validation videos")
    for run in board.runs:
        del run.metrics["val"]
    assert not [note for note in score_table(board).notes if "best_every" in note]


def test_the_stages_of_a_run_say_whether_it_learns_from_labels_alone(tmp_path: Path, write_run: Write) -> None:
    """In runs of old they do not, and the names of the methods of that time tell it."""
    alone, beside = (BASELINE["train"] | {"labels_alone": said} for said in (True, False))
    runs = {
        "new": {"train": alone},
        "new-semi": {"pretrain": alone, "pseudo": {"seconds": 6.0, "frames": 18}, "train": beside},
        "pgvcl": THREE_STAGES | {"finetune": alone},  # begun of old: contrast does not say it
        "stitch": BASELINE,
        "twice": {"pretrain": BASELINE["train"], "finetune": alone},
    }
    for method, stages in runs.items():
        write_run(f"d__every-10__{method}__seed-0", {"test": scores(0.5)}, stages=stages)
    (board,) = read_results(tmp_path).boards
    found = {row.title: row.unlabelled for row in board.rows}
    assert found == {"new": "0.0%", "new-semi": "90.0%", "pgvcl": "90.0%", "stitch": "90.0%", "twice": "0.0%"}


def test_classes_that_a_mean_hides(tmp_path: Path, write_run: Write) -> None:
    def of_classes(**ious: float | None) -> dict:
        return {"test": scores(0.5) | {"classes": {name: {"iou": iou, "frames": 10} for name, iou in ious.items()}}}

    data = {"classes": [{"name": name, "color": [0, 0, 0]} for name in ("tool", "needle", "gauze")]}
    for seed, tool in ((0, 0.9), (1, 0.8)):
        write_run(f"d__every-10__supervised__seed-{seed}", of_classes(tool=tool, needle=0.1, gauze=None), data=data)
        write_run(f"d__every-10__pgvcl__seed-{seed}", of_classes(tool=0.5, needle=0.4, gauze=None), data=data)
    (board,) = read_results(tmp_path).boards
    table = class_table(board, "test")
    assert table is not None
    assert table.columns == ["Method", "Labelled", "tool", "needle"]  # no frame shows gauze
    assert texts(table.groups[0]) == [
        ["pgvcl", "10.0%", "50.00 ± 0.00", "*40.00 ± 0.00"],
        ["supervised", "10.0%", "*85.00 ± 7.07", "10.00 ± 0.00"],
    ]
    assert table in tables_of(board)
    written = {path.name: path for path in write_tables(tmp_path)}
    with written["scores.csv"].open(newline="") as file:
        (line,) = [one for one in csv.DictReader(file) if (one["method"], one["where"]) == ("supervised", "tool")]
    assert (line["score"], round(float(line["mean"]), 6), line["best"]) == ("iou", 0.85, "1")


def test_the_plan_gives_the_order_the_reference_and_what_is_missing(tmp_path: Path, write_run: Write) -> None:
    two_methods(write_run)
    runs = [f"d__every-10__{method}__seed-{seed}" for seed in (0, 1, 2) for method in ("supervised", "pgvcl")]
    write_json(tmp_path / "plan.json", {"title": "mine", "reference": "pgvcl", "runs": runs})
    results = read_results(tmp_path)
    assert results.missing == ["d__every-10__supervised__seed-2", "d__every-10__pgvcl__seed-2"]
    (group,) = results.boards[0].groups
    assert [row.title for row in group.rows] == ["supervised", "pgvcl"]
    assert group.reference.title == "pgvcl"


def test_what_is_not_comparable_is_marked_and_never_the_best(tmp_path: Path, write_run: Write) -> None:
    def metrics(value: float) -> dict:
        return {"test": scores(value)}

    write_run("d__every-10__supervised__seed-0", metrics(0.5), stages=BASELINE)
    write_run("d__every-10__equal__seed-0", metrics(0.6), stages=THREE_STAGES)
    longer = {"train": BASELINE["train"] | {"steps": 200}}
    write_run("d__every-10__longer__seed-0", metrics(0.7), stages=longer)
    write_run("d__every-10__larger__seed-0", metrics(0.8), size=128, encoder="resnet101")
    write_run("d__every-10__labels__seed-0", metrics(0.9), labelled=3)
    (board,) = read_results(tmp_path).boards
    assert {row.title: row.mark for row in board.rows} == {
        "supervised": "",
        "equal": "",  # 50 + 50 supervised steps; those of the contrast do not count
        "labels": "†",
        "larger": "‡",
        "longer": "§",
    }
    assert list(board.differences) == ["†", "‡", "§"]
    assert board.differences["§"] == "not comparable with supervised: supervised steps 200 instead of 100"
    assert "encoder resnet101 instead of resnet50; size 128×128 instead of 64×64" in board.differences["‡"]
    assert "labelled frames 3 (" in board.differences["†"]
    for table in tables_of(board):
        assert any(note.startswith("§ not comparable") for note in table.notes)
    best = [row[0].text for row in score_table(board).groups[0] if row[3].bold]
    assert best == ["equal"]


def test_a_table_explains_the_marks_that_stand_in_it_and_no_others(tmp_path: Path, write_run: Write) -> None:
    """The sixth mark is the first one twice: rows that have the first one each do not come to it."""
    for number in range(7):
        write_run(f"d__every-10__m{number}__seed-0", {"test": scores(0.5)}, size=64 + 32 * number)
    write_run("d__every-10__n__seed-0", {"test": scores(0.5)}, size=96)
    write_run("d__every-20__m0__seed-0", {"test": scores(0.5)})
    for method in ("m1", "n"):
        write_run(f"d__every-20__{method}__seed-0", {"test": scores(0.5)}, size=96)
    (board,) = read_results(tmp_path).boards
    assert list(board.differences) == ["†", "‡", "§", "¶", "‖", "††"]
    board.groups = [group for group in board.groups if group.labelling == "every-20"]
    assert texts(score_table(board).groups[0])[1][0] == "m1†"
    for table in tables_of(board):
        assert [note.partition(" ")[0] for note in table.notes if "not comparable" in note] == ["†"]


def test_one_lucky_seed_is_not_the_best_beside_means_of_several(tmp_path: Path, write_run: Write) -> None:
    for seed in range(3):
        write_run(f"d__every-10__supervised__seed-{seed}", {"test": scores(0.5)})
        write_run(f"d__every-10__pgvcl__seed-{seed}", {"test": scores(0.6)}, stages=THREE_STAGES)
    write_run("d__every-10__lucky__seed-0", {"test": scores(0.9)})
    (board,) = read_results(tmp_path).boards
    table = score_table(board)
    assert [row[0].text for row in table.groups[0] if row[3].bold] == ["pgvcl"]
    assert "and has 3 seeds or more" in table.notes[0]


def test_a_row_of_which_one_seed_can_be_compared_is_not_the_best(tmp_path: Path, write_run: Write) -> None:
    for seed in range(3):
        write_run(f"d__every-10__supervised__seed-{seed}", {"test": scores(0.5)})
        write_run(f"d__every-10__pgvcl__seed-{seed}", {"test": scores(0.6)}, stages=THREE_STAGES)
        write_run(f"d__every-10__mixed__seed-{seed}", {"test": scores(0.9)}, size=128 if seed else 64)
    (board,) = read_results(tmp_path).boards
    assert [row[0].text for row in score_table(board).groups[0] if row[3].bold] == ["pgvcl"]


def test_few_seeds_are_not_the_best_beside_several_that_cannot_be_compared(tmp_path: Path, write_run: Write) -> None:
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)})
    write_run("d__every-10__lucky__seed-0", {"test": scores(0.9)})
    for seed in range(3):
        write_run(f"d__every-10__larger__seed-{seed}", {"test": scores(0.6)}, size=128)
    (board,) = read_results(tmp_path).boards
    assert not any(cell.bold for row in score_table(board).groups[0] for cell in row)


def test_seeds_of_one_row_that_differ_are_marked(tmp_path: Path, write_run: Write) -> None:
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)})
    write_run("d__every-10__supervised__seed-1", {"test": scores(0.5)}, size=128)
    (board,) = read_results(tmp_path).boards
    assert board.rows[0].mark == "†"
    assert board.differences["†"].endswith("in seed 1 size 128×128 instead of 64×64")


def test_seeds_of_one_row_with_other_settings_of_the_method_are_marked(tmp_path: Path, write_run: Write) -> None:
    """A default may have changed between them; a setting that this version does not know is told as it is written."""
    stitch = {"name": "stitch", "train": {"steps": 100}}
    write_run("d__every-10__stitch__seed-0", {"test": scores(0.5)}, config={"method": stitch})  # of format 1: upright
    write_run("d__every-10__stitch__seed-1", {"test": scores(0.5)}, config={"method": stitch, "format": 2})
    for seed, weight in enumerate((0.1, 0.1, 0.2)):
        before = {"name": "stitch", "train": {"contrast": weight}}
        write_run(f"d__every-10__before__seed-{seed}", {"test": scores(0.5)}, config={"method": before})
    (board,) = read_results(tmp_path).boards
    gone, upright = board.differences.values()
    assert gone.endswith("in seed 2 method.train.contrast: 0.1 → 0.2")
    assert upright.endswith(
        "in seed 1 method.train.augment.tilt: 0.0 → 30.0; in seed 1 method.train.strong.tilt: 0.0 → 30.0"
    )


def test_a_row_whose_seeds_have_other_settings_is_not_the_best(tmp_path: Path, write_run: Write) -> None:
    """Its mark says that it cannot be compared: a bold number beside it would say the opposite."""
    for seed in range(3):
        write_run(f"d__every-10__supervised__seed-{seed}", {"test": scores(0.5)})
        write_run(f"d__every-10__pgvcl__seed-{seed}", {"test": scores(0.6)}, stages=THREE_STAGES)
        mixed = {"name": "stitch", "train": {"confidence": 0.9 if seed else 0.98}}
        write_run(f"d__every-10__mixed__seed-{seed}", {"test": scores(0.9)}, config={"method": mixed})
    (board,) = read_results(tmp_path).boards
    assert {row.title: row.mark for row in board.rows} == {"mixed": "†", "pgvcl": "", "supervised": ""}
    assert [row[0].text for row in score_table(board).groups[0] if row[3].bold] == ["pgvcl"]


@pytest.mark.parametrize("reference", ["twice", "d"])
def test_where_the_reference_of_a_labelling_is_marked_the_best_has_no_mark(
    reference: str, tmp_path: Path, write_run: Write
) -> None:
    """Whether its runs there were made otherwise, or it has none there and another row stands in for it."""
    longer = {"train": BASELINE["train"] | {"steps": 200}}
    rows = {reference: (0.7, longer), "a": (0.6, longer), "b": (0.8, BASELINE), "c": (0.5, BASELINE)}
    names = [write_run("s__every-10__twice__seed-0", {"test": scores(0.5)}, stages=BASELINE).name]
    for method, (value, stages) in rows.items():
        names.append(write_run(f"s__every-20__{method}__seed-0", {"test": scores(value)}, stages=stages).name)
    write_json(tmp_path / "plan.json", {"title": "p", "reference": "twice", "runs": names})
    (board,) = read_results(tmp_path).boards
    assert [row.mark for row in board.rows] == ["", "†", "†", "", ""]
    table = score_table(board)
    assert [row[0].text for row in table.groups[1] if row[3].bold] == ["b"]
    assert "Bold: the best of a labelling, among what can be compared with twice." in table.notes[0]
    with write_tables(tmp_path)[2].open(newline="") as file:
        assert {line["method"] for line in csv.DictReader(file) if line["best"] == "1"} == {"b"}


def test_a_labelling_whose_rows_all_have_a_mark_has_its_best(tmp_path: Path, write_run: Write) -> None:
    """As where the length of supervised stages is said in epochs."""
    for labelling, steps in (("every-10", 100), ("every-20", 50)):
        for method, value in (("twice", 0.5), ("pgvcl", 0.6), ("dmt", 0.7)):
            stages = {"train": BASELINE["train"] | {"steps": steps}}
            write_run(f"s__{labelling}__{method}__seed-0", {"test": scores(value)}, stages=stages)
    (board,) = read_results(tmp_path).boards
    assert [row.mark for row in board.rows] == ["", "", "", "†", "†", "†"]
    assert [[row[0].text for row in rows if row[3].bold] for rows in score_table(board).groups] == [["dmt"], ["dmt"]]


def test_labelled_frames_are_those_of_the_row_that_stands_in_for_the_reference(
    tmp_path: Path, write_run: Write
) -> None:
    names = [write_run("s__every-10__twice__seed-0", {"test": scores(0.5)}, labelled=2).name]
    for method, labelled in (("a", 3), ("b", 4)):
        names.append(write_run(f"s__every-20__{method}__seed-0", {"test": scores(0.5)}, labelled=labelled).name)
    write_json(tmp_path / "plan.json", {"title": "p", "reference": "twice", "runs": names})
    (board,) = read_results(tmp_path).boards
    assert re.search(r"labelled frames 4 .* instead of 3 .* \(as a has\)", board.differences["†"])


def test_an_output_stride_that_nobody_chose_is_told_in_words(tmp_path: Path, write_run: Write) -> None:
    """Of an architecture that has a usual one, it is that one."""

    def model(architecture: str, stride: int | None) -> dict:
        said = {"architecture": architecture, "encoder": "resnet50", "output_stride": stride, "weights": None}
        return {"model": said}

    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)}, config=model("deeplabv3", 8))
    write_run("d__every-10__usual__seed-0", {"test": scores(0.5)}, config=model("deeplabv3", None))
    write_run("d__every-10__unet__seed-0", {"test": scores(0.5)}, config=model("unet", None))
    (board,) = read_results(tmp_path).boards
    assert {row.title: row.mark for row in board.rows} == {"supervised": "", "unet": "†", "usual": ""}
    assert board.differences["†"].endswith(
        "architecture unet instead of deeplabv3; output stride the encoder's own instead of 8"
    )


def test_another_split_and_other_weights_are_marked(tmp_path: Path, write_run: Write) -> None:
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)})
    weights = {"name": "r50.safetensors", "sha256": "0123456789abcdef"}
    write_run("d__every-10__other__seed-0", {"test": scores(0.5)}, data={"videos": {}, "weights": weights})
    (board,) = read_results(tmp_path).boards
    assert "videos unknown; starting weights r50.safetensors (01234567) instead of random" in board.differences["†"]


def test_videos_in_which_splits_differ_are_named(tmp_path: Path, write_run: Write) -> None:
    def videos(**changed: dict | None) -> dict:
        usual = {"case": "c", "split": "train", "frames": 9, "excluded": [], "sha256": "a", "view": None}
        both = {"v1": {}, "v2": {}, "v3": {"split": "test"}} | changed
        return {"videos": {name: usual | video for name, video in both.items() if video is not None}}

    for method, data in {
        "supervised": videos(),
        "alike": videos(),
        "turned": videos(v1={"split": "test"}, v3={}),
        "thinned": videos(v2={"take_every": 2}),
        "more": videos(v4={"split": None}),
        "others": videos(v1=None, v2={"sha256": "b"}, v3={"split": "val"}, v4={}),
    }.items():
        write_run(f"d__every-10__{method}__seed-0", {"test": scores(0.5)}, data=data)
    (board,) = read_results(tmp_path).boards
    assert {row.title: board.differences[row.mark].partition(": ")[2] for row in board.rows if row.mark} == {
        "turned": "split with v1 in test instead of train and v3 in train instead of test",
        "thinned": "split with v2 of other frames",
        "more": "split with v4 beside",
        "others": "split with no v1, v2 of other frames and 2 more",
    }


def test_a_mark_of_some_seeds_stands_beside_these(tmp_path: Path, write_run: Write) -> None:
    """In the picture; one of all seeds stands at the row's end, once."""
    for seed, value in enumerate((0.5, 0.6, 0.7)):
        write_run(f"d__every-10__supervised__seed-{seed}", {"test": scores(value)}, size=128 if seed == 1 else 64)
        write_run(f"d__every-10__larger__seed-{seed}", {"test": scores(value + 0.1)}, size=128)
        write_run(f"d__every-10__first__seed-{seed}", {"test": scores(value + 0.2)}, size=128 if seed == 0 else 64)
    (board,) = read_results(tmp_path).boards
    assert {row.title: set(row.marked) for row in board.rows} == {
        "first": {0},
        "larger": {0, 1, 2},
        "supervised": {1},
    }
    axes = Figure().subplots()
    _dots(axes, board, [row.title for row in board.rows], "test")
    beside = {row.mark: row.title for row in board.rows}
    found = [(beside[text.get_text()], round(text.xy[0])) for text in axes.texts]
    assert sorted(found) == [("first", 70), ("larger", 80), ("supervised", 60)]


def test_other_scored_frames_are_marked(tmp_path: Path, write_run: Write) -> None:
    """Masks may be taken away, added or mended between two runs; in the split alone none of it shows."""

    def of(frames: dict[str, int], tools: int, outline: int = 9) -> dict:
        whole = scores(0.5, videos=dict.fromkeys(frames, 0.5)) | {"classes": {"tool": {"iou": 0.5, "frames": tools}}}
        whole["confusion"] = [[outline, 0], [0, 0]]
        whole["overall"] |= {"frames": sum(frames.values())}
        for name, count in frames.items():
            whole["videos"][name] |= {"frames": count}
        return whole

    every, fewer = of({"seq2": 100, "seq4": 122}, 30), of({"seq2": 40}, 30)
    mended, redrawn = of({"seq2": 100, "seq4": 122}, 31), of({"seq2": 100, "seq4": 122}, 30, outline=10)
    completion = of({"seq1": 50}, 5)
    for method, metrics in {
        "supervised": [{"test": every}, {"test": every}],
        "alike": [{"test": every}, {"test": every}],
        "fewer": [{"test": every}, {"test": fewer}],
        "mended": [{"test": mended}, {"test": mended}],
        "more": [{"test": every, "completion": completion}] * 2,
        "redrawn": [{"test": redrawn}, {"test": redrawn}],
    }.items():
        for seed, of_seed in enumerate(metrics):
            write_run(f"d__every-10__{method}__seed-{seed}", of_seed)
    # Of another labelling, other frames are left for completion.
    write_run("d__every-20__supervised__seed-0", {"test": every, "completion": completion}, labelled=1)
    (board,) = read_results(tmp_path).boards
    assert [row.title for row in board.rows if row.mark] == ["fewer", "mended", "more", "redrawn"]
    found = [re.sub(r" \([0-9a-f]{8}\)", "", text.partition(": ")[2]) for text in board.differences.values()]
    assert found == [
        "in seed 1 test on 40 frames of 1 video instead of 222 frames of 2 videos",
        "test on 222 frames of 2 videos instead of 222 frames of 2 videos",
        "completion on 50 frames of 1 video instead of nothing",
        "test on 222 frames of 2 videos instead of 222 frames of 2 videos",
    ]


def test_classes_left_out_of_validation_are_marked(tmp_path: Path, write_run: Write) -> None:
    """By those that have scores: earlier versions do not say `left_out`."""
    both = {"tissue": {"iou": 0.5, "frames": 20}, "tool": {"iou": 0.0, "frames": 5}}
    one = {"tissue": both["tissue"]}
    data = {"classes": [{"name": name, "color": [0, 0, 0]} for name in both]}
    for method, classes, said in (
        ("supervised", one, {"left_out": ["tool"]}),
        ("earlier", one, {}),
        ("every", both, {"left_out": []}),
    ):
        write_run(f"d__every-10__{method}__seed-0", {"val": scores(0.5) | {"classes": classes} | said}, data=data)
    (board,) = read_results(tmp_path).boards
    assert [row.title for row in board.rows if row.mark] == ["every"]
    (told,) = (re.sub(r" \([0-9a-f]{8}\)", "", text.partition(": ")[2]) for text in board.differences.values())
    assert re.fullmatch(r"validation on (.*) instead of \1 without tool", told)


def test_another_precision_and_another_size_of_stored_frames_are_marked(tmp_path: Path, write_run: Write) -> None:
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)})
    stored = {"root": "data", "size": 64, "labelling": {"every": 10}, "store_size": 128}
    write_run("d__every-10__stored__seed-0", {"test": scores(0.5)}, config={"data": stored})
    folder = write_run("d__every-10__precise__seed-0", {"test": scores(0.5)}, runs_at_a_time=(1, 1))
    starts = read_json(folder / "environment.json")["starts"]
    write_json(folder / "environment.json", {"starts": [starts[0], starts[1] | {"precision": "bf16"}]})
    write_run("d__every-10__alike__seed-0", {"test": scores(0.5) | {"precision": "32"}})
    write_run("d__every-10__scored__seed-0", {"test": scores(0.5) | {"precision": "bf16"}})
    (board,) = read_results(tmp_path).boards
    assert {row.title: board.differences[row.mark].partition(": ")[2] for row in board.rows if row.mark} == {
        "precise": "precision 32 and bf16 instead of 32",
        "scored": "precision at evaluation bf16 instead of that of the training",
        "stored": "data.store_size 128 instead of automatic",
    }


def test_a_size_of_stored_frames_that_nobody_chose_is_told_as_what_it_is(tmp_path: Path, write_run: Write) -> None:
    """A method with smaller crops has larger ones, and so sharper views in every stage, unless all frames are small."""

    def method(*crops: float) -> dict:
        return {"method": {"name": "m"} | {f"stage-{n}": {"augment": {"crop": [c, 1]}} for n, c in enumerate(crops)}}

    def seen(side: int) -> dict:
        view = {"rect": [0, 0, side, 2 * side]}
        video = {"case": "c0", "split": "train", "frames": 22, "excluded": [], "sha256": "a", "view": view}
        return {"videos": {"v1": video}}

    for labelling, side in (("every-10", 512), ("every-20", 80)):
        write_run(f"{side}__{labelling}__plain__seed-0", {"test": scores(0.5)}, config=method(0.5), data=seen(side))
        settings = method(0.5, 0.3)
        write_run(f"{side}__{labelling}__small__seed-0", {"test": scores(0.5)}, config=settings, data=seen(side))
    found = {board.dataset: [*board.differences.values()] for board in read_results(tmp_path).boards}
    assert found == {"512": ["not comparable with plain: data.store_size 143 instead of 86"], "80": []}


def test_thinned_video_counts_by_the_frames_that_take_part(tmp_path: Path, write_run: Write) -> None:
    video = {"case": "c0", "split": "train", "frames": 22, "excluded": [3, 4], "sha256": "a", "view": None}
    thinned = video | {"take_every": 4, "masked": [1]}
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)}, data={"videos": {"v1": video}})
    write_run("d__every-10__other__seed-0", {"test": scores(0.5)}, data={"videos": {"v1": thinned}})
    (board,) = read_results(tmp_path).boards
    assert {row.runs[0].labelled_share for row in board.rows} == {2 / 20, 2 / 6}
    assert "split" in board.differences["†"]


def test_a_stage_may_say_how_many_of_its_steps_are_supervised() -> None:
    stages = {"round-1-a": {"steps": 100}, "round-1-b": {"steps": 100, "supervised_steps": 0}, "labels-1-a": {}}
    assert supervised_steps(stages) == 100


def test_paired_differences_seed_by_seed(tmp_path: Path, write_run: Write) -> None:
    two_methods(write_run)
    write_run("d__every-10__pgvcl__seed-2", per_sequence(0.9, 0.9, 0.9, 0.9), stages=THREE_STAGES)  # has no pair
    table = paired_table(read_results(tmp_path).boards[0])
    assert table is not None
    assert table.columns == ["Method", "Labelled", "per seed", "mean", "wins", "per seed", "mean", "wins"]
    # +3 and −1: mean 1, deviation √(2² + 2²)
    assert texts(table.groups[0]) == [
        [
            "pgvcl − supervised",
            "10.0%",
            "+3.00, −1.00",
            "+1.00 ± 2.83",
            "1 of 2",
            "+10.00, +10.00",
            "+10.00 ± 0.00",
            "2 of 2",
        ]
    ]


def test_a_difference_to_a_reference_whose_seeds_differ_is_marked(tmp_path: Path, write_run: Write) -> None:
    for seed in (0, 1):
        write_run(f"d__every-10__supervised__seed-{seed}", {"test": scores(0.5)}, size=128 if seed else 64)
        write_run(f"d__every-10__pgvcl__seed-{seed}", {"test": scores(0.6)}, stages=THREE_STAGES)
    table = paired_table(read_results(tmp_path).boards[0])
    assert table is not None
    assert texts(table.groups[0])[0][0] == "pgvcl − supervised†"
    assert table.notes[-1].startswith("† not comparable")


def test_the_proposed_method_is_held_against_each_other_over_all_labellings(tmp_path: Path, write_run: Write) -> None:
    names = []
    for labelling, values in {"every-10": (0.50, 0.54), "every-20": (0.40, 0.44)}.items():
        for seed, value in enumerate(values):
            # The proposed one is 2, 4, 6 and 8 points above the control: 5 on average, with a deviation of √(20 / 3).
            gain = 0.02 * (len(names) // 3 + 1)
            for method, score in (("twice", value), ("ours", value + gain), ("other", value + 2 * gain)):
                names.append(f"d__{labelling}__{method}__seed-{seed}")
                write_run(names[-1], per_sequence(score, 0.5, 0.5, 0.8), stages=BASELINE)
    write_json(tmp_path / "plan.json", {"title": "p", "reference": "twice", "proposed": "ours", "runs": names})
    table = pooled_table(read_results(tmp_path).boards[0])
    assert table is not None
    against_twice, against_other = texts(table.groups[0])
    half = 3.18245 * (20 / 3) ** 0.5 / 2  # Student's t with three degrees of freedom
    assert against_twice[:3] == ["ours − twice", f"+5.00 [+{5 - half:.2f}, +{5 + half:.2f}]", "4 of 4"]
    assert against_other[:3] == ["ours − other", f"−5.00 [−{5 + half:.2f}, −{5 - half:.2f}]", "0 of 4"]
    assert against_twice[5:7] == ["0.00 [0.00, 0.00]", "0 of 4"]  # in completion
    assert "of these runs on these videos" in table.notes[0]


def test_each_point_of_a_swept_proposed_method_is_held_against_the_others(tmp_path: Path, write_run: Write) -> None:
    """At the same point, where they have it; and times are held against all its points."""
    made = {"twice": 0.5, "ours__P0": 0.6, "ours__P1": 0.7, "both__P0": 0.4, "both__P1": 0.3, "other__P2": 0.2}
    names = [f"d__every-10__{row}__seed-{seed}" for row in made for seed in (0, 1)]
    for name in names:
        _, _, *row, _ = name.split("__")
        commit = "a" if row[0] == "twice" else "b"
        write_run(name, {"test": scores(made["__".join(row)])}, config={"method": {"name": row[0]}}, commit=commit)
    write_json(tmp_path / "plan.json", {"title": "p", "reference": "twice", "proposed": "ours", "runs": names})
    (board,) = read_results(tmp_path).boards
    table = pooled_table(board)
    assert table is not None
    assert [row[:3] for row in texts(table.groups[0])] == [
        ["ours · P0 − twice", "+10.00 [+10.00, +10.00]", "2 of 2"],
        ["ours · P0 − both · P0", "+20.00 [+20.00, +20.00]", "2 of 2"],
        ["ours · P0 − other · P2", "+40.00 [+40.00, +40.00]", "2 of 2"],
        ["ours · P1 − twice", "+20.00 [+20.00, +20.00]", "2 of 2"],
        ["ours · P1 − both · P1", "+40.00 [+40.00, +40.00]", "2 of 2"],
        ["ours · P1 − other · P2", "+50.00 [+50.00, +50.00]", "2 of 2"],
    ]
    assert {row.title for row in board.rows if row.mark_of_times} == {"twice"}
    assert "† times not comparable with ours because of commit." in cost_table(board).notes


def test_a_pair_carries_the_marks_of_both(tmp_path: Path, write_run: Write) -> None:
    names = []
    for method, size in (("twice", 64), ("ours", 128), ("other", 256)):
        names.append(f"d__every-10__{method}__seed-0")
        write_run(names[-1], {"test": scores(0.5)}, size=size)
    write_json(tmp_path / "plan.json", {"title": "p", "reference": "twice", "proposed": "ours", "runs": names})
    table = pooled_table(read_results(tmp_path).boards[0])
    assert table is not None
    assert [row[0] for row in texts(table.groups[0])] == ["ours − twice†", "ours − other‡,†"]


def test_intervals_resample_cases_only_with_five_of_them(tmp_path: Path, write_run: Write) -> None:
    for seed in (0, 1):
        for method, gain in (("supervised", 0.0), ("better", 0.1)):
            cases = {f"c{i}": 0.5 + gain for i in range(5)}
            four = {f"c{i}": 0.5 for i in range(4)}
            low = 0.4 + 0.1 * seed
            metrics = {"test": scores(0.5 + gain, cases=cases, interval=[low, 0.8]), "val": scores(0.5, cases=four)}
            write_run(f"d__every-10__{method}__seed-{seed}", metrics)
    (board,) = read_results(tmp_path).boards
    table = interval_table(board)
    assert table is not None
    assert table.columns == ["Method", "Labelled", "Test (5 cases)"]
    assert "that of a row's own score on d (hands): the cases of the set are drawn again" in table.notes[0]
    # the mean of the two seeds' lower ends, 0.4 and 0.5
    assert texts(table.groups[0])[0] == ["better", "10.0%", "60.00 [45.00, 80.00]"]
    assert "(validation has 4)" in "\n".join(score_table(board).notes)
    paired = paired_table(board)
    assert paired is not None
    assert paired.columns[2:] == ["per seed", "mean", "wins", "per seed", "mean", "wins", "over cases"]
    # every case gains the same: however cases are drawn, so does their mean
    assert texts(paired.groups[0])[0][-1] == "+10.00 [+10.00, +10.00]"
    assert "difference between the row's two methods" in paired.notes[1]


def test_cost(tmp_path: Path, write_run: Write) -> None:
    two_methods(write_run)
    table = cost_table(read_results(tmp_path).boards[0])
    pgvcl, supervised = texts(table.groups[1])
    assert supervised == ["supervised", "10.0%", "1.0 ± 0.0", "2.0", "13.3 ± 0.0", "train 1.0", "an abacus"]
    # 50·8 + 70·4 + 50·8 frames in 114 s; 120 s with the pseudo labels
    assert pgvcl[2:6] == ["2.0 ± 0.0", "3.0", "9.5 ± 0.0", "pretrain 0.5, pseudo 0.1, contrast 0.9, finetune 0.5"]


def test_a_time_that_is_not_known_is_not_told(tmp_path: Path, write_run: Write) -> None:
    unknown = {"train": BASELINE["train"] | {"seconds": None}}
    for name, stages in {"a__seed-0": BASELINE, "a__seed-1": unknown, "b__seed-0": unknown}.items():
        write_run(f"d__every-10__{name}", {"test": scores(0.5)}, stages=stages)
    table = cost_table(read_results(tmp_path).boards[0])
    rows = [row[2:6] for row in texts(table.groups[0])]
    assert rows == [["1.0", "2.0", "13.3", "train 1.0"], ["–", "2.0", "–", "–"]]
    assert (
        "How long 2 runs of 3 took is not known (1 of a and 1 of b): minutes and images/s are of the others."
        in table.notes
    )
    with write_tables(tmp_path)[3].open(newline="") as file:
        assert [line["seconds"] for line in csv.DictReader(file)] == ["60.0", "", ""]


def test_cost_says_how_many_runs_shared_a_device(tmp_path: Path, write_run: Write) -> None:
    """Of a run that went on later the most; old records, which do not say it, stand beside the others."""
    shared: dict[str, list[tuple[int | None, ...]]] = {"a": [(8,), (8, 12)], "b": [(1,), ()], "c": [(8, None), ()]}
    for method, of_seed in shared.items():
        for seed, counts in enumerate(of_seed):
            write_run(f"d__every-10__{method}__seed-{seed}", {"test": scores(0.5)}, runs_at_a_time=counts)
    table = cost_table(read_results(tmp_path).boards[0])
    assert table.columns[-1] == "Runs at a time"
    assert [row[-1] for row in texts(table.groups[0])] == ["8, 12", "1, –", "–"]
    assert table.notes[0].endswith("slow each other down: runs at a time are how many of one command did, at most.")
    assert table.notes[1:-1] == [
        "† times not comparable with most runs of a because of runs at a time of some runs.",
        "‡ times not comparable with most runs of a because of runs at a time (not always known).",
    ]
    with write_tables(tmp_path)[3].open(newline="") as file:
        assert [line["runs_at_a_time"] for line in csv.DictReader(file)] == ["8", "12", "1", "", "", ""]


def test_times_of_runs_that_were_not_made_alike_are_marked(tmp_path: Path, write_run: Write) -> None:
    """Against most runs of the proposed method, in the table of cost alone; also where a row mixes conditions."""
    now: dict[str, Any] = {"runs_at_a_time": (8,), "device": "an abacus with MPS", "commit": "b", "threads": 1}
    made: dict[str, list[dict[str, Any]]] = {
        "reference": [now | {"device": "an abacus", "commit": "a"}] * 3,
        "ours": [now | {"device": "an abacus", "commit": "a"}, now, now],
        "alike": [now] * 3,
        "restarted": [now | {"runs_at_a_time": (8, 8)}] * 3,
        "threads": [now | {"threads": 2}] * 3,
        "packages": [now | {"packages": {"torch": "3"}}] * 3,
        "compiled": [now | {"config": {"compute": {"compile": False, "workers": 2}}}] * 3,
        "of-old": [now | {"runs_at_a_time": ()}] * 3,
        "larger": [now | {"size": 128, "runs_at_a_time": (1,)}] * 3,
    }
    names = []
    for method, of_seed in made.items():
        for seed, conditions in enumerate(of_seed):
            names.append(f"d__every-10__{method}__seed-{seed}")
            write_run(names[-1], {"test": scores(0.5)}, **conditions)
    write_json(tmp_path / "plan.json", {"title": "p", "reference": "reference", "proposed": "ours", "runs": names})
    (board,) = read_results(tmp_path).boards
    table = cost_table(board)
    notes = {mark: said for mark, _, said in (note.partition(" ") for note in table.notes)}
    found = {row.title: notes[row.mark_of_times] for row in board.rows if row.mark_of_times}
    assert {title: said.partition("because of ")[2] for title, said in found.items()} == {
        "reference": "device and commit.",
        "ours": "device and commit of some runs.",
        "threads": "threads.",
        "packages": "versions.",
        "compiled": "compile and workers.",
        "of-old": "runs at a time (not always known).",
        "larger": "runs at a time.",
    }
    assert {said.partition(" because of")[0] for said in found.values()} == {
        "times not comparable with most runs of ours"
    }
    assert notes["†"].startswith("not comparable with reference: size 128×128")
    assert texts(table.groups[0])[-1][0] == f"larger†,{board.rows[-1].mark_of_times}"
    assert table.notes[-1].startswith("Rows with the same mark of times may differ")
    assert {row[0] for row in texts(score_table(board).groups[0])} == {*made} - {"larger"} | {"larger†"}
    with write_tables(tmp_path)[3].open(newline="") as file:
        lines = {line["run"]: line for line in csv.DictReader(file)}
    ours = lines["d__every-10__ours__seed-1"]
    assert [ours[key] for key in ("device", "runs_at_a_time", "compile", "workers", "threads", "commit")] == [
        "an abacus with MPS",
        "8",
        "auto",
        "auto",
        "1",
        "b",
    ]
    assert len({line["versions"] for line in lines.values()}) == 2


def test_what_no_run_says_marks_no_times(tmp_path: Path, write_run: Write) -> None:
    for method in ("supervised", "pgvcl"):
        write_run(f"d__every-10__{method}__seed-0", {"test": scores(0.5)}, commit=None)
    table = cost_table(read_results(tmp_path).boards[0])
    assert [row[0] for row in texts(table.groups[0])] == ["pgvcl", "supervised"]
    (note,) = table.notes
    assert note.endswith("Runs that share a device slow each other down; how many did is not known.")


def test_config_scores_and_stages_are_enough(tmp_path: Path, write_run: Write) -> None:
    folder = write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)}, data=None)
    folder.rename(folder.with_name("my-run"))
    (board,) = read_results(tmp_path).boards
    assert board.title == "by-hand"
    assert texts(score_table(board).groups[0]) == [["supervised", "every-10", "–", "50.00", "90.00", "80.00"]]
    assert write_tables(tmp_path, tmp_path / "again")


def by_the_default_protocol(value: float) -> dict:
    return {"test": scores(value) | {"protocol": "default"}}


def test_runs_that_no_plan_names_are_told_apart_by_their_datasets(tmp_path: Path, write_run: Write) -> None:
    """Both are of one method and seed."""
    for number, (dataset, value) in enumerate({"hernia": 0.5, "the liver / 2": 0.7}.items()):
        folder = write_run(
            f"of-{number}", by_the_default_protocol(value), data={"dataset": dataset}, config={"seed": 0}
        )
        folder.rename(tmp_path / folder.name)
    boards = read_results(tmp_path).boards
    assert [board.title for board in boards] == ["hernia", "the liver / 2"]
    assert [texts(score_table(board).groups[0])[0][3] for board in boards] == ["50.00", "70.00"]
    written = {path.name: path for path in write_tables(tmp_path, tmp_path / "tables")}
    assert {"scores-hernia.png", "scores-the-liver-2.png"} <= written.keys()
    with written["runs.csv"].open(newline="") as file:
        assert [line["miou"] for line in csv.DictReader(file)] == ["0.5", "0.7"]


def test_options_and_protocols_tell_datasets_apart(tmp_path: Path, write_run: Write) -> None:
    runs = (
        ("cadis", "cadis", {"task": 1}, "cadis, task=1"),
        ("cadis", "cadis", {"task": 2, "leave_out": "/data/Doe, John/bad.csv"}, "cadis, leave_out=bad.csv, task=2"),
        ("hernia", "cadis", {}, "hernia, cadis"),
        ("hernia", "default", {}, "hernia"),
        (
            "vocalfolds",
            "vocalfolds-patients",
            {"protocol": "patients", "test_patient": 1},
            "vocalfolds, vocalfolds-patients, test_patient=1",
        ),
    )
    for number, (dataset, protocol, options, _) in enumerate(runs):
        said = {"root": "data", "size": 64, "labelling": {"every": 10}, "options": options}
        write_run(
            f"of-{number}",
            {"test": scores(0.5) | {"protocol": protocol}},
            data={"dataset": dataset},
            config={"seed": 0, "data": said},
        )
    boards = read_results(tmp_path).boards
    assert [board.title for board in boards] == [board.dataset for board in boards] == [title for *_, title in runs]


def test_runs_that_were_not_scored_are_left_out_and_named(tmp_path: Path, write_run: Write) -> None:
    """As those of data that have labels in training videos alone; here two of one method and seed."""
    for name in ("first", "second"):
        write_run(f"{name}-0", {}, data={"dataset": name})
    said = "Left out, as nothing was scored: first-0 and second-0."
    assert said in write_tables(tmp_path)[0].read_text()
    write_run("third-0", by_the_default_protocol(0.5), data={"dataset": "first"})
    (board,) = read_results(tmp_path).boards
    assert (board.title, len(board.runs)) == ("first", 1)
    assert said in write_tables(tmp_path)[0].read_text()


def test_pictures_of_datasets_with_almost_one_name_are_numbered(tmp_path: Path, write_run: Write) -> None:
    for number, dataset in enumerate(("hernia 2", "hernia-2", "Hernia-2")):
        write_run(f"of-{number}", by_the_default_protocol(0.5), data={"dataset": dataset}, config={"seed": 0})
    written = write_tables(tmp_path)
    names = [path.name for path in written if path.suffix == ".png"]
    assert names == ["scores-hernia-2.png", "scores-hernia-2-2.png", "scores-Hernia-2-3.png"]
    assert re.findall(r"\(([^()]*\.png)\)", written[0].read_text()) == names


def test_two_runs_in_one_place_are_refused(tmp_path: Path, write_run: Write) -> None:
    for name in ("first", "second"):
        write_run(f"{name}-0", by_the_default_protocol(0.5), data={"dataset": "hernia"})
    with pytest.raises(UserError) as refused:
        read_results(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: the runs first-0 and second-0 are both supervised with seed 0 and labelling every-10 on hernia, "
        "expected one: move one into another folder, or name each after its place in the tables, "
        "DATASET__LABELLING__METHOD__seed-N."
    )
    (tmp_path / "runs/second-0").rename(tmp_path / "runs/hernia__every-10__other__seed-0")
    (board,) = read_results(tmp_path).boards
    assert [row.title for row in board.rows] == ["supervised", "other"]


def test_tables_load_neither_networks_nor_methods(tmp_path: Path, write_run: Write) -> None:
    """Which takes several times as long as to make the tables."""
    two_methods(write_run)
    words = "import sys; from pathlib import Path; from suture.comparison.compare import write_tables; "
    words += "write_tables(Path(sys.argv[1])); print(*{'timm', 'torchvision', 'lightning'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", words, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_damaged_runs_that_no_plan_names_are_told(tmp_path: Path, write_run: Write) -> None:
    for seed in range(6):
        folder = write_run(f"of-{seed}", by_the_default_protocol(0.5))
        if seed:
            (folder / "config.yaml").write_text("")
    text = write_tables(tmp_path)[0].read_text(encoding="utf-8")
    assert "Failed: of-1, of-2, of-3, of-4 and of-5: config.yaml holds nothing, expected a mapping of keys" in text
    assert "Not finished: 5 of 6 runs (of-1, of-2, of-3, of-4 and 1 more)." in text
    (tmp_path / "runs/of-0/metrics.json").write_text("")
    with pytest.raises(UserError, match=r"of-0.metrics\.json is not valid JSON.*\n.*of-1.config\.yaml holds nothing"):
        read_results(tmp_path)


def test_runs_that_lie_deeper_are_told(tmp_path: Path, write_run: Write) -> None:
    for seed, place in enumerate(("all/mine-0", "all/round/mine-1", "all/methods/runs/mine-2")):
        folder = write_run(f"of-{seed}", by_the_default_protocol(0.5))
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        folder.rename(tmp_path / place)

    def printed() -> str:
        console = Console(file=io.StringIO(), record=True, width=400)
        show_tables(tmp_path / "all", None, console)
        return console.export_text()

    deeper = f"left out; to compare them, give their folder: {tmp_path / 'all/methods'} and {tmp_path / 'all/round'}."
    assert printed().endswith(f"Finished runs that lie deeper are {deeper}\n")
    write_json(tmp_path / "all/plan.json", {"title": "p", "reference": "supervised", "runs": ["mine-0"]})
    assert "lie deeper are left out" not in printed(), "a plan says what belongs"
    with pytest.raises(UserError, match=rf"is a finished run.*\n.*give their folder: {tmp_path / 'all'}"):
        read_results(tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    expected = rf"No folder in {tmp_path} or {tmp_path / 'runs'} is a finished run, .*: expected a comparison file"
    with pytest.raises(UserError, match=expected):
        write_tables(tmp_path)


class Tags(HTMLParser):
    """Checks that every tag is closed, counts cells, and notes links, what they lead to and what has no name."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[int] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.scopes: set[str | None] = set()
        self.unnamed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.links += [value.removeprefix("#") for key, value in attrs if key == "href"]
        self.places |= {value for key, value in attrs if key == "id"}
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += int(dict(attrs).get("colspan", 1))
        if tag == "th":
            self.scopes.add(dict(attrs).get("scope"))
        if tag in ("nav", "div"):
            self.unnamed += [] if dict(attrs).get("aria-label") else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_all_forms_of_a_table(tmp_path: Path, write_run: Write) -> None:
    two_methods(write_run)
    write_run("d__every-10__a_b__seed-0", per_sequence(0.9, 0.9, 0.9, 0.9), size=128)
    (board,) = read_results(tmp_path).boards
    table = score_table(board)

    text = markdown(table)
    assert (
        "| Method | Labelled | Unlabelled | Test mIoU Overall | Test mIoU per frame | Test mIoU seqA | Test mIoU seqB "
        "| Completion mIoU Overall | Completion mIoU per frame |"
    ) in text
    assert r"| a\_b (1 of 2 seeds)† | 10.0% | 90.0% | 90.00 | 90.00 | 90.00 | 90.00 | 90.00 | 90.00 |" in text
    assert "| **53.00 ± 0.00** |" in text

    text = latex(table)
    begun, ended = (re.findall(rf"\\{word}{{([a-z*]+)}}", text) for word in ("begin", "end"))
    assert begun == ["table*", "adjustbox", "tabular"] == ended[::-1]
    assert r"\multicolumn{2}{c}{Frames used}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-7}\cmidrule(lr){8-9}" in text
    assert r"a\_b (1 of 2 seeds)\textsuperscript{$\dagger$} & 10.0\% &" in text
    assert r"\textbf{53.00 $\pm$ 0.00}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {8}

    written = {path.name: path for path in write_tables(tmp_path)}
    assert set(written) == {"tables.md", "tables.tex", "tables.html", "scores.csv", "runs.csv", "scores-d.png"}
    tags = Tags()
    tags.feed(written["tables.html"].read_text(encoding="utf-8"))
    assert not tags.open
    assert tags.links == ["section-1", "scores-d", "paired-d", "cost-d"]
    assert {*tags.links} == tags.places
    assert set(tags.rows) == {7, 8, 9}  # cost, differences and scores
    assert tags.scopes == {"col", "colgroup", "row"}, "for screen readers"
    assert not tags.unnamed
    with written["scores.csv"].open(newline="") as file:
        lines = list(csv.DictReader(file))
    (line,) = [one for one in lines if (one["method"], one["where"], one["score"]) == ("pgvcl", "seqB", "miou")]
    assert (float(line["mean"]), float(line["std"]), line["seeds"], line["best"]) == (0.56, 0.0, "2", "1")
    with written["runs.csv"].open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 6 * 2


def test_latex_has_plain_characters_alone(tmp_path: Path, write_run: Write) -> None:
    """Without packages of its own for them, `<>|` are other signs there, and an arrow is an error in older LaTeX."""
    for seed, weight in enumerate((0.1, 0.2)):
        settings = {"name": "stitch", "train": {"contrast": weight}}
        data = {"dataset": "a<b> | 50 % of_c"}
        write_run(f"d__every-10__stitch__seed-{seed}", {"test": scores(0.5)}, config={"method": settings}, data=data)
    write_tables(tmp_path)
    text = (tmp_path / "tables.tex").read_text(encoding="utf-8")
    assert text.isascii()
    assert r"a\textless{}b\textgreater{} \textbar{} 50 \% of\_c" in text
    assert r"method.train.contrast: 0.1 $\to$ 0.2" in text


def test_a_terminal_gets_the_columns_it_can_hold_and_the_marks_explained(tmp_path: Path, write_run: Write) -> None:
    for seed in range(3):
        for method, size in (("supervised", 64), ("without-unlabelled-frames", 64), ("larger", 128)):
            metrics = {which: per_sequence(0.5 + 0.1 * seed, 0.6, 0.4, 0.8)["test"] for which in ("val", "test")}
            metrics["completion"] = scores(0.9, per_sequence=True)
            write_run(f"d__every-10__{method}__seed-{seed}", metrics, size=size)
    (board,) = read_results(tmp_path).boards

    def printed(width: int) -> str:
        console = Console(file=io.StringIO(), record=True, width=width)
        print_scores(board, console)
        return console.export_text()

    narrow = printed(80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.count("60.00 ± 10.00 │ 60.00 ± 10.00 │ 90.00 ± 0.00 │") == 3, "no number is broken"
    assert not any(title in narrow for title in ("per frame", "seqA", "Unlabelled"))
    assert "† not comparable with supervised: size 128×128 instead of 64×64." in " ".join(narrow.split())
    assert narrow.index("† not comparable") > narrow.index("larger†")
    assert "per frame" in printed(160)
    assert "seqA" not in printed(160)
    assert "seqA" in printed(200)


def test_only_the_terminal_says_that_scores_rest_on_little(tmp_path: Path, write_run: Write) -> None:
    """Below the scores of a dataset, once; tables are kept and passed on with what they say of their cases."""
    for seed in range(2):
        write_run(f"d__every-10__supervised__seed-{seed}", {"test": scores(0.5, videos={"a": 0.5})})
    console = Console(file=io.StringIO(), record=True, width=400)
    show_tables(tmp_path, None, console)
    printed = console.export_text()
    said = "Scores rest on little: new videos (test) on 10 frames of 1 video; on other videos they may be quite"
    assert printed.count(said) == 1
    assert printed.index(": scores (%)") < printed.index(said) < printed.index("Tables: ")
    assert "rest on little" not in (tmp_path / "tables.md").read_text()
    write_run("d__every-5__supervised__seed-0", {"test": scores(0.5, videos={"a": 0.5}, frames=8)})
    show_tables(tmp_path, None, console)
    assert "new videos (test) on 8 to 10 frames of 1 video" in console.export_text()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_says_what_takes_seconds(tmp_path: Path, write_run: Write, terminal: bool) -> None:
    two_methods(write_run)
    written = io.StringIO()
    show_tables(tmp_path, None, Console(file=written, force_terminal=terminal))
    assert ("Reading the runs and making their tables" in written.getvalue()) == terminal
    assert terminal or not written.getvalue().startswith("\n")


@pytest.mark.parametrize(("labelled", "title"), [(2, "all masks"), (20, "all")])
def test_all_masks_are_not_all_frames(tmp_path: Path, write_run: Write, labelled: int, title: str) -> None:
    write_run("d__all__pgvcl__crop__seed-0", {"test": scores(0.5)}, labelled=labelled)
    (board,) = read_results(tmp_path).boards
    assert [group.title for group in board.groups] == [title]
    assert [picture.caption.partition(":")[0] for picture in pictures(board)] == [f"{board.title}, {title}"]


def test_why_a_run_failed_stands_above_the_tables(tmp_path: Path, write_run: Write) -> None:
    two_methods(write_run)
    done, failed, left = "d__every-10__pgvcl__seed-0", "d__every-10__pgvcl__seed-2", "d__every-10__pgvcl__seed-3"
    write_json(tmp_path / "plan.json", {"title": "p", "reference": "pgvcl", "runs": [done, failed, left]})
    reason = "/data/Doe, John/case01.mp4 is cut off: copy it again."
    write_json(tmp_path / "failed.json", {done: "of an earlier start", failed: reason})
    for path in write_tables(tmp_path):
        if path.suffix in (".md", ".tex", ".html"):
            text = path.read_text(encoding="utf-8")
            said = f"Failed: {failed}: case01.mp4 is cut off: copy it again."
            assert text.index(said) < text.index(": scores ("), "above the first table"
            assert text.count("Failed: ") == 1
            assert f"Not finished: 2 of 3 runs ({failed}, {left})." in text
            assert "Doe" not in text, "folders can tell a patient's name"
    console = Console(file=io.StringIO(), record=True, width=200)
    show_tables(tmp_path, None, console)
    printed = console.export_text()
    assert printed.index(f"failed: {failed}: {reason}") < printed.index(": scores (") < printed.index("Not finished: 2")


def test_many_missing_runs_are_counted_by_method(tmp_path: Path, write_run: Write) -> None:
    def said(datasets: str) -> set[str]:
        runs = [
            f"{dataset}__every-10__{method}__seed-{seed}"
            for seed in range(3)
            for dataset in datasets
            for method in ("supervised", "pgvcl", "a_b")
        ]
        write_json(tmp_path / "plan.json", {"title": "p", "reference": "supervised", "runs": runs})
        pages = [path for path in write_tables(tmp_path) if path.suffix in (".md", ".tex", ".html")]
        return {line for path in pages for line in re.findall(r"Not finished: [^<\n]*", path.read_text())}

    for method in ("pgvcl", "a_b"):
        write_run(f"d__every-10__{method}__seed-0", {"test": scores(0.5)})
    write_run("d__every-10__pgvcl__seed-1", {"test": scores(0.5)})
    # In the order of the plan, though of supervised the first and of a_b the second seed is missing before pgvcl's.
    assert said("d") == {"Not finished: 6 of 9 runs (supervised 3, pgvcl 1, a_b 2)."}
    assert said("de") == {
        "Not finished: 15 of 18 runs (d: supervised 3, pgvcl 1, a_b 2; e: supervised 3, pgvcl 3, a_b 3)."
    }
    for method in ("supervised", "pgvcl", "a_b"):
        for seed in range(3):
            write_run(f"d__every-10__{method}__seed-{seed}", {"test": scores(0.5)})
    assert said("de") == {"Not finished: 9 of 18 runs (e: supervised 3, pgvcl 3, a_b 3)."}
    for method in ("supervised", "pgvcl"):
        for seed in range(3):
            write_run(f"e__every-10__{method}__seed-{seed}", {"test": scores(0.5)})
    named = ", ".join(f"e__every-10__a_b__seed-{seed}" for seed in range(3))
    assert said("de") == {f"Not finished: 3 of 18 runs ({named})."}


def test_seeds_are_counted_against_those_planned_for_the_method(tmp_path: Path, write_run: Write) -> None:
    planned = {"twice": 5, "supervised": 3, "dmt": 3, "unimatch": 5, "once": 1}
    there = planned | {"unimatch": 1, "dmt": 2}
    for method, seeds in there.items():
        for seed in range(seeds):
            write_run(f"d__every-10__{method}__seed-{seed}", {"test": scores(0.9 if seeds < 3 else 0.01 * seeds)})

    def rows() -> list[str]:
        (board,) = read_results(tmp_path).boards
        of_scores, of_cost = ([row[0].text for row in table(board).groups[0]] for table in (score_table, cost_table))
        assert of_scores == of_cost
        return of_scores

    most = [
        "dmt (2 of 5 seeds)",
        "once (1 of 5 seeds)",
        "supervised (3 of 5 seeds)",
        "twice",
        "unimatch (1 of 5 seeds)",
    ]
    assert rows() == most, "without a plan, against the row that has most"
    runs = [f"d__every-10__{method}__seed-{seed}" for method, seeds in planned.items() for seed in range(seeds)]
    write_json(tmp_path / "plan.json", {"title": "p", "reference": "twice", "runs": runs})
    assert rows() == ["twice", "supervised", "dmt (2 of 3 seeds)", "unimatch (1 of 5 seeds)", "once"]
    table = score_table(read_results(tmp_path).boards[0])
    assert table.notes[0] == (
        "Mean ± sample standard deviation over 1 to 5 seeds. Planned are 5 seeds, but 3 for supervised and dmt; 1 for "
        "once. With fewer than three seeds, a difference may be chance. Bold: the best of a labelling, among what can "
        "be compared with twice and has 3 seeds or more."
    )
    assert [row[0].text for row in table.groups[0] if row[3].bold] == ["twice"], "one planned seed does not win either"


def test_a_sweep_becomes_a_picture(tmp_path: Path, write_run: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar for each point, and one for the method beside that is not swept; of each set of frames."""
    for seed, more in enumerate((0.0, 0.02)):
        write_run(f"d__every-10__pixpro__seed-{seed}", {"test": scores(0.5 + more), "completion": scores(0.7)})
        for point, value in (("P0N0", 0.55), ("P1N4", 0.58)):
            metrics = {"test": scores(value + more), "completion": scores(value + 0.2)}
            write_run(f"d__every-10__pgvcl__{point}__seed-{seed}", metrics)
    drawn: list[Figure] = []
    save = Figure.savefig

    def saved(figure: Figure, *to: Any, **options: Any) -> None:
        drawn.append(figure)
        save(figure, *to, **options)

    monkeypatch.setattr(Figure, "savefig", saved)
    written = {path.name: path for path in write_tables(tmp_path)}
    assert written["sweep-d-every-10.png"].read_bytes().startswith(b"\x89PNG")
    assert "data:image/png;base64," in written["tables.html"].read_text(encoding="utf-8")
    assert "pgvcl · P1N4" in written["tables.md"].read_text(encoding="utf-8")

    (figure,) = drawn
    test, completion = figure.axes
    assert bars(test) == {"P0N0": (56.0, SWEPT), "P1N4": (59.0, SWEPT), "pixpro": (51.0, BESIDE)}
    assert bars(completion) == {"P0N0": (75.0, SWEPT), "P1N4": (78.0, SWEPT), "pixpro": (70.0, BESIDE)}


def bars(axes: Axes) -> dict[str, tuple[float, str]]:
    """How high each bar reaches, by the name below it, and its colour."""
    names = {tick: label.get_text() for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)}
    found = {
        names[round(bar.get_x() + bar.get_width() / 2)]: (
            round(bar.get_y() + bar.get_height(), 6),
            to_hex(bar.get_facecolor()),
        )
        for bar in axes.patches
    }
    assert len(found) == len(axes.patches) == len(names), "one above each name"
    return found


def test_a_comparison_without_a_sweep_shows_every_seed(tmp_path: Path, write_run: Write) -> None:
    for labelling in ("every-10", "every-20"):
        for seed in range(2):
            write_run(f"d__{labelling}__twice__seed-{seed}", {"test": scores(0.5 + 0.01 * seed)})
    write_run("d__all__supervised__seed-0", {"test": scores(0.6), "completion": scores(0.8)})
    written = {path.name: path for path in write_tables(tmp_path)}
    picture = cv2.imread(str(written["scores-d.png"]))
    assert picture is not None
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10, "something is drawn"
    assert ": each seed of every method, and" in written["tables.md"].read_text(encoding="utf-8")
