"""The effects that docs/recipe.md states are those of the committed runs."""

import csv
import itertools
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

import pytest
import yaml

from suture.core.io import write_json, write_text

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs/results/effects.py"))
Effects = Callable[..., str]

FIRST = {
    "`consistency` 1 → 2": "consistency: 1.0 → 2.0",
    "`confidence` 0.7 → 0.95": "confidence: 0.7 → 0.95",
    "asking less of classes of which the teacher is less sure": "adaptive: false → true",
    "crops from 0.5 → from 0.3": "not augment.crop: [0.3, 1.0] → [0.5, 1.0]",
    "all pixels → hard pixels in the last half": "not hard_from: 0.5 → 1.0",
    "`propagate` 0 → 0.5": "propagate: 0.0 → 0.5",
    "`restyle` 0 → 0.5": "restyle: 0.0 → 0.5",
    "`strong_labelled` 0.5 → 1": "strong_labelled: 0.5 → 1.0",
    "`rare` 0.5 → 0.2": "not rare: 0.2 → 0.5",
    "a video drawn first, then a frame of it": "by_video: 0.0 → 1.0",
    "`contrast` 0 → 0.1": "contrast: 0.0 → 0.1",
}
SECOND = {
    "`consistency` 0.5 → 1": "consistency: 0.5 → 1.0",
    "`confidence` 0.95 → 0.98": "confidence: 0.95 → 0.98",
    "`propagate` 0.5 → 0.8": "propagate: 0.5 → 0.8",
    "`rise` 0 → 0.5": "rise: 0.0 → 0.5",
    "`whole` false → true": "whole: false → true",
    "`contrast` 0 → 0.1": "contrast: 0.0 → 0.1",
    "`look_back` 0.1 → 0.3": "look_back: 0.1 → 0.3",
}
THIRD = {
    "`strong_labelled` 0.5 → 0": "not strong_labelled: 0.0 → 0.5",
    "`lr` 1e-4 → 3e-4": "optimizer.lr: 0.0001 → 0.0003",
    "crops from 0.3 → from 0.5": "augment.crop: [0.3, 1.0] → [0.5, 1.0]",
    "`cutmix` 0 → 0.5": "cutmix: 0.0 → 0.5",
    "`rare` 0 → 0.2": "rare: 0.0 → 0.2",
    "hard pixels in the last half → all pixels": "hard_from: 0.5 → 1.0",
    "`settle_from` 1 → 0.75": "not settle_from: 0.75 → 1.0",
    "every 20th frame labelled → every 10th": "not data.labelling.every: 10 → 20",
}
FOURTH = {
    "`consistency` 0.5 → 1 and `confidence` 0.98 → 0.95": "consistency: 0.5 → 1.0",
    "hard pixels in the last half → all pixels": "hard_from: 0.5 → 1.0",
    "`drop_channels` 0 → 0.5": "drop_channels: 0.0 → 0.5",
    "`restyle` 0.5 → 0": "not restyle: 0.0 → 0.5",
    "`propagate` 0.8 → 0": "not propagate: 0.0 → 0.8",
    "crops from 0.5 → from 0.75": "augment.crop: [0.5, 1.0] → [0.75, 1.0]",
    "every 10th frame labelled → every 20th": "data.labelling.every: 10 → 20",
}
FIFTH = {
    "`drop_channels` 0 → 0.5": "drop_channels: 0.0 → 0.5",
    "strong colours of unlabelled samples → mild": "not strong.color.brightness: 0.2 → 0.4",
    "`lr` 3e-4 → 6e-4": "optimizer.lr: 0.0003 → 0.0006",
    "`cutmix` 0.5 → 1": "cutmix: 0.5 → 1.0",
    "every 20th frame labelled → every 10th": "not data.labelling.every: 10 → 20",
}
SIXTH = {
    "`tilt` 0 → 30": "tilt: 0.0 → 30.0",
    "`doubt` 0 → 5, `confidence` 0.98 → 0.8, `consistency` 0.5 → 1": "consistency: 0.5 → 1.0",
    "`cutmix` 0.5 → 1": "cutmix: 0.5 → 1.0",
    "every 10th frame labelled → every 20th": "data.labelling.every: 10 → 20",
}
SEVENTH = {
    "hard pixels in the last half → all pixels": "hard_from: 0.5 → 1.0",
    "`ema` 0 → 0.996": "ema: 0.0 → 0.996",
}
EIGHTH = {
    "hard pixels in the last half → all pixels": "hard_from: 0.5 → 1.0",
    "`frozen_norms` false → true": "frozen_norms: false → true",
    "`paste` 0 → 0.5": "paste: 0.0 → 0.5",
    "`correspondence.neighbours` 1 → 2": "correspondence.neighbours: 1 → 2",
}
NINTH = {
    "`strong_labelled` 0 → 0.5": "strong_labelled: 0.0 → 0.5",
    "hard pixels in the last half → all pixels": "hard_from: 0.5 → 1.0",
    "`frozen_norms` false → true": "frozen_norms: false → true",
}


@pytest.fixture
def effects(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Effects:
    """What the script prints, given some words."""
    monkeypatch.chdir(ROOT)

    def printed(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["docs/results/effects.py", *words])
        SCRIPT["main"]()
        return capsys.readouterr().out

    return printed


@pytest.mark.parametrize(
    ("heading", "folder", "method", "said"),
    [
        ("## First screen", "vocalfolds-recipe", "stitch", FIRST),
        ("## Second screen", "vocalfolds-recipe-finer", "stitch", SECOND),
        ("## Third screen", "vocalfolds-recipe-labelled", "strong", THIRD),
        ("## Fourth screen", "vocalfolds-recipe-trust", "stitch", FOURTH),
        ("## Fifth screen", "vocalfolds-recipe-views", "stitch", FIFTH),
        ("## Sixth screen", "vocalfolds-recipe-tilt", "stitch", SIXTH),
        ("## Seventh screen", "vocalfolds-recipe-hard", "stitch", SEVENTH),
        ("## Eighth screen", "vocalfolds-recipe-norms", "stitch", EIGHTH),
        ("## Ninth screen", "vocalfolds-recipe-patients", "stitch", NINTH),
    ],
)
def test_the_stated_effects_are_what_the_runs_say(
    effects: Effects, heading: str, folder: str, method: str, said: dict[str, str]
) -> None:
    printed = effects(f"docs/results/{folder}", "--method", method)
    found = {name: [cell.split("±")[0].strip() for cell in cells] for name, cells in rows(printed).items()}
    found |= {f"not {name}": [turned(cell) for cell in cells] for name, cells in found.items()}
    section = (ROOT / "docs/recipe.md").read_text(encoding="utf-8").split(heading)[1]
    table = next(part for part in section.split("\n\n") if part.startswith("|"))
    assert rows(table) == {stated: found[name] for stated, name in said.items()}


def test_every_fold_of_many_has_a_level_of_its_own(effects: Effects, tmp_path: Path) -> None:
    """Effects and levels add up here; without seq1 nothing shows pathology, which has no part in either score."""
    levels = {"seq1": 0.3, "seq3": 0.5, "seq5": 0.2, "seq6": 0.7}
    for (fold, level), hard, rare in itertools.product(levels.items(), (0.5, 1.0), (0.0, 0.2)):
        score = level + 0.1 * (hard == 1) - 0.02 * (rare == 0.2)
        row = {"iou": score, "frames": 9}
        new = {"classes": {"tissue": row}, "overall": {"miou_frames": score / 2}}
        known = {"classes": {"tissue": row, "pathology": row}, "overall": {"miou_frames": score}}
        if fold == "seq1":
            new["classes"] |= {"pathology": {"iou": 0.0, "frames": 9}}
            known["classes"]["pathology"] = {"iou": 0.0, "frames": 0}  # predicted all the same, in some frame
        train = {"hard_from": hard, "rare": rare}
        root = "data" if fold < "seq5" else "../shared/data"  # collected, with the folders' names alone, and not
        run = tmp_path / "runs" / f"{fold}-{hard}-{rare}"
        write_text(
            run / "config.yaml",
            yaml.safe_dump(
                {"method": {"name": "stitch", "train": train}, "data": {"validation": [fold], "root": root}}
            ),
        )
        write_json(run / "metrics.json", {"val": new, "completion": known})
    printed = effects(str(tmp_path))
    assert printed.startswith("16 runs of stitch; difference of the two values, with its standard error (10 free)")
    assert rows(printed) == {
        "hard_from: 0.5 → 1.0": ["+10.0 ± 0.0", "+5.0 ± 0.0", "+10.0 ± 0.0", "+10.0 ± 0.0"],
        "rare: 0.0 → 0.2": ["−2.0 ± 0.0", "−1.0 ± 0.0", "−2.0 ± 0.0", "−2.0 ± 0.0"],
    }


def test_screens_that_ask_the_same_are_weighted_by_how_sure_they_are(effects: Effects) -> None:
    printed = effects(*(f"docs/results/vocalfolds-recipe-{screen}" for screen in ("hard", "patients")))
    *alone, together = printed.split("\n\n")[1::2]
    (one, error), (other, its) = (map(float, sum_of(table, "hard_from: 0.5 → 1.0").split(" ± ")) for table in alone)
    stated = sum_of(together, "hard_from: 0.5 → 1.0")
    assert rows(together).keys() == {"hard_from: 0.5 → 1.0"}
    assert float(stated.split(" ± ")[0]) == pytest.approx(
        (one / error**2 + other / its**2) / (error**-2 + its**-2), abs=0.1
    )
    page = " ".join((ROOT / "docs/recipe.md").read_text(encoding="utf-8").split())
    assert f"the seventh and ninth together then say {stated} in that sum" in page
    printed = effects(*(f"docs/results/vocalfolds-recipe-{screen}" for screen in ("norms", "hard", "patients")))
    together = printed.split("\n\n")[-1]
    assert f"this screen, the seventh and the ninth together {sum_of(together, 'hard_from: 0.5 → 1.0')}" in page
    assert f"with the ninth screen {sum_of(together, 'frozen_norms: false → true')}" in page


def test_what_each_fold_of_the_eighth_screen_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the sum that decides; and what is left of the choices without the fold where both settings change together."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "docs/results")])
    script = runpy.run_path(str(ROOT / "docs/results/effects.py"))
    configs, scores = script["read"](ROOT / "docs/results/vocalfolds-recipe-norms", "stitch")
    page = " ".join((ROOT / "docs/recipe.md").read_text(encoding="utf-8").split())

    def told(number: float) -> str:
        return f"{number:+.1f}".replace("-", "−")

    without = [number for number, config in enumerate(configs) if "seq1" not in config["data.validation"]]
    left, _ = script["fitted"]([configs[number] for number in without], scores[without])
    for key, stated in (
        ("hard_from", "the sum changes by {}, {}, {}, {} and {}: 2.5 ± 1.5 by the runs, ± {:.1f}"),
        ("correspondence.neighbours", "{}, {}, {}, {} and {}, that is 3.2 ± 1.5 by the runs and ± {:.1f} by the folds"),
    ):
        changed = max(config[f"method.train.{key}"] for config in configs)
        apart = []
        for fold in ("seq1", "seq3", "seq5", "seq6", "seq8"):
            ours: dict[bool, list[float]] = {True: [], False: []}
            for config, row in zip(configs, scores, strict=True):
                if fold in config["data.validation"]:
                    ours[config[f"method.train.{key}"] == changed].append(row[-1])
            apart.append(fmean(ours[True]) - fmean(ours[False]))
        assert stated.format(*map(told, apart), stdev(apart) / len(apart) ** 0.5) in page
        effect = next(effect for name, effect in left.items() if name.startswith(key))
        assert f"{effect.mean[-1]:.1f} ± {effect.error[-1]:.1f}" in page.split("Without seq1 they are")[1][:60]


def test_what_hard_pixels_leave_to_the_teacher() -> None:
    """The share of the unlabelled pixels that is learnt from, once only the hard ones of labelled frames count."""
    sure = []
    for screen, hard in itertools.product(("norms", "hard"), (0.5, 1)):
        taught: list[list[float]] = []
        for run in (ROOT / f"docs/results/vocalfolds-recipe-{screen}/runs").iterdir():
            if yaml.safe_load((run / "config.yaml").read_text())["method"]["train"]["hard_from"] == hard:
                with next(run.glob("stages/*/metrics.csv")).open() as file:
                    taught.append([float(row["taught"]) for row in csv.DictReader(file) if int(row["step"]) >= 1000])
        assert len(taught) == 10
        sure.append(f"{100 * fmean(map(fmean, taught)):.0f}")
    page = " ".join((ROOT / "docs/recipe.md").read_text(encoding="utf-8").split())
    assert "of {} % of the unlabelled pixels with hard pixels, and of {} % without".format(*sure[:2]) in page
    assert "in the seventh screen {} and {} %".format(*sure[2:]) in page


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        (
            "vocalfolds-recipe-apart",
            'method.train.passes has the values "apart", "own", "together", expected two at most',
        ),
        ("vocalfolds-384", "is scored on completion, test, expected val and completion"),
        ("vocalfolds-h10", "has no run of stitch: name another method with --method"),
    ],
)
def test_what_is_no_screen_is_told(
    effects: Effects, capsys: pytest.CaptureFixture[str], folder: str, told: str
) -> None:
    """A setting with three values would pass for chance."""
    with pytest.raises(SystemExit) as ended:
        effects(f"docs/results/{folder}")
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def rows(text: str) -> dict[str, list[str]]:
    """The four scores of every setting in a table."""
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| ") and line.count("|") > 5]
    scored = [[cell.strip() for cell in cells[1:6]] for cells in lines if any(sign in cells[2] for sign in "+−")]
    return {setting: scores for setting, *scores in scored}


def sum_of(table: str, setting: str) -> str:
    """The last cell of a setting's row: of the sum by which is chosen."""
    row = next(line for line in table.splitlines() if line.startswith(f"| {setting} |"))
    return row.split("|")[-2].strip()


def turned(effect: str) -> str:
    return effect.translate(str.maketrans("+−", "−+"))
