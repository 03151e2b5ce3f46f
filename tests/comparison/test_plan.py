"""Runs that a comparison file plans, and mistakes in it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from suture.comparison.plan import RunKey, read_plan, require_unchanged
from suture.core.errors import UserError

SMALL = {"datasets": {"made": {"root": "data"}}, "methods": ["supervised"], "seeds": [0]}


def write(folder: Path, **keys: Any) -> Path:
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL | keys, sort_keys=False))
    return file


def names(file: Path) -> list[str]:
    return [run.name for run in read_plan(file).runs]


def test_every_combination_one_seed_after_the_other(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        preset="vocalfolds",
        datasets={"a": {"root": "x"}, "b": {"root": "y", "options": {"protocol": "patients"}}},
        labelling=[{"every": 20}, {"ratio": 0.05}],
        methods=["supervised", "pgvcl"],
        seeds=[3, 1],
    )
    plan = read_plan(file)
    assert plan.roles["reference"] == "supervised"
    assert [run.name for run in plan.runs[:4]] == [
        "a__every-20__supervised__seed-3",
        "a__ratio-0.05__supervised__seed-3",
        "a__every-20__pgvcl__seed-3",
        "a__ratio-0.05__pgvcl__seed-3",
    ]
    assert len(plan.runs) == 2 * 2 * 2 * 2
    assert [run.key.seed for run in plan.runs] == [3] * 8 + [1] * 8
    last = plan.runs[-1].config
    assert (last.seed, last.method["name"], last.data.options) == (1, "pgvcl", {"protocol": "patients"})
    assert (last.data.labelling.every, last.data.labelling.ratio) == (None, 0.05)  # instead of the preset's every 10
    assert last.method["contrast"]["epochs"] == 20  # from the preset
    assert last.data.root.resolve() == tmp_path / "y"


def test_settings_of_variants_go_over_those_of_all(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        preset="vocalfolds",
        datasets={"made": {"root": "data", "size": 64}},
        methods={
            "supervised": None,
            "short": {"method": "supervised", "set": {"method.train.epochs": 2, "model": {"encoder": "resnet18"}}},
            "ceiling": {"method": "supervised", "labelling": {}},
        },
        set={"compute.workers": 2, "methods.supervised.train": {"steps": 50}, "model.encoder": "resnet34"},
    )
    plain, short, ceiling = (run.config for run in read_plan(file).runs)
    assert (plain.compute.workers, plain.data.size, plain.data.labelling.every) == (2, 64, 10)
    assert (plain.method["train"]["steps"], plain.model.encoder) == (50, "resnet34")
    assert (short.method["train"]["steps"], short.method["train"]["epochs"]) == (None, 2)
    assert short.model.encoder == "resnet18"
    assert ceiling.data.labelling.every is None
    assert names(file)[2] == "made__all__ceiling__seed-0"


def test_a_method_may_have_seeds_of_its_own(tmp_path: Path) -> None:
    methods = {"supervised": None, "pgvcl": {"method": "pgvcl", "seeds": [0, 4]}}
    assert names(write(tmp_path, methods=methods, labelling={"every": 5}, seeds=[0, 1])) == [
        "made__every-5__supervised__seed-0",
        "made__every-5__pgvcl__seed-0",
        "made__every-5__supervised__seed-1",
        "made__every-5__pgvcl__seed-4",
    ]


def test_some_runs_alone(tmp_path: Path) -> None:
    methods = {"supervised": None, "longer": {"method": "supervised"}, "pgvcl": {"method": "pgvcl", "seeds": [4]}}
    plan = read_plan(write(tmp_path, methods=methods, seeds=[0, 1]))
    assert [run.name for run in plan.only(["pgvcl", "made__all__longer__seed-1", "longer"]).runs] == [
        "made__all__pgvcl__seed-4",
        "made__all__longer__seed-1",
        "made__all__longer__seed-0",
    ], "as they are named, each once"
    assert plan.only(()) == plan
    with pytest.raises(UserError, match=r"--only is 'longr' \(did you mean longer\?\)"):
        plan.only(["pgvcl", "longr"])


def test_a_sweep_is_of_the_methods_that_have_its_keys(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        methods=["supervised", "pgvcl"],
        sweep={"method.contrast.keys.same_shot": [0, 1], "method.contrast.keys.other_videos": [4]},
    )
    assert names(file) == [
        "made__all__supervised__seed-0",
        "made__all__pgvcl__same_shot=0,other_videos=4__seed-0",
        "made__all__pgvcl__same_shot=1,other_videos=4__seed-0",
    ]
    keys = read_plan(file).runs[1].config.method["contrast"]["keys"]
    assert (keys["same_shot"], keys["other_videos"]) == (0, 4)


@pytest.mark.parametrize("key", ["method.contrast.keys.other_videos", "methods.pgvcl.contrast.keys.other_videos"])
def test_swept_values_go_over_the_settings_of_a_variant(key: str, tmp_path: Path) -> None:
    bank = {"method": "pgvcl", "set": {"method.contrast.keys": {"mode": "bank", "other_videos": 2}}}
    runs = read_plan(write(tmp_path, methods={"twice": None, "bank": bank}, sweep={key: [0, 4]})).runs
    assert [run.key[2:4] for run in runs] == [("twice", ""), ("bank", "other_videos=0"), ("bank", "other_videos=4")]
    keys = [run.config.method["contrast"]["keys"] for run in runs[1:]]
    assert [(one["other_videos"], one["mode"]) for one in keys] == [(0, "bank"), (4, "bank")]


def test_a_method_takes_its_own_settings_of_a_point(tmp_path: Path) -> None:
    sweep = {
        "alone": {"method": {"contrast": {"keys": {"mode": "shared"}}}},
        "both": {"methods": {"twice": {"finetune": {"steps": 3}}}, "methods.pgvcl.finetune.steps": 4, "data.size": 64},
    }
    runs = read_plan(write(tmp_path, methods=["supervised", "twice", "pgvcl"], sweep=sweep)).runs
    assert [run.key[2:4] for run in runs] == [
        ("supervised", "both"),
        ("twice", "both"),
        ("pgvcl", "alone"),
        ("pgvcl", "both"),
    ]
    supervised, twice, alone, pgvcl = (run.config for run in runs)
    assert alone.method["contrast"]["keys"]["mode"] == "shared"
    assert (twice.method["finetune"]["steps"], pgvcl.method["finetune"]["steps"]) == (3, 4)
    assert (supervised.data.size, twice.data.size, alone.data.size, pgvcl.data.size) == (64, 64, 256, 64)


def test_points_that_are_the_same_to_a_method_are_run_once(tmp_path: Path) -> None:
    sweep = {
        name: {"data.size": size, "methods.pgvcl.contrast.epochs": epochs}
        for name, size, epochs in (("a", 64, 1), ("b", 64, 2), ("c", 128, 1))
    }
    runs = read_plan(write(tmp_path, methods=["supervised", "pgvcl"], sweep=sweep)).runs
    assert [run.key[2:4] for run in runs] == [
        ("supervised", "a"),
        ("supervised", "c"),
        ("pgvcl", "a"),
        ("pgvcl", "b"),
        ("pgvcl", "c"),
    ]


@pytest.mark.parametrize("point", ["", "other_videos=all", "same_shot=1,other_videos=4"])
def test_a_name_gives_the_key(point: str) -> None:
    place = RunKey("vocal_folds", "every-10", "pgv-cl", point, 12)
    assert RunKey.of_name(place.name) == place
    assert RunKey.of_name("vocalfolds-pgvcl-0") is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"method": ["supervised"]}, r"there is no key 'method' \(did you mean methods\?\)"),
        ({"methods": {"a": {"method": "twice", "sed": [1]}}}, r"'methods.a.sed' \(did you mean seeds\?\)"),
        ({"datasets": {}}, "datasets is {}: "),
        ({"methods": [["pgvcl"]]}, "methods is "),
        ({"methods": ["a__b"]}, "use letters, digits"),
        (
            {"methods": ["supervisd"]},
            r"small.yaml, made, supervisd: method: there is no 'supervisd' \(did you mean supervised\?\); the",
        ),
        ({"seeds": [0, 0]}, "a seed stands twice"),
        ({"seeds": 0}, "seeds is 0: input should be a valid"),
        ({"sweep": {"seed": [1, 2]}}, "a setting changes the method or the seed"),
        ({"methods": {"a": {"method": "twice", "set": {"method": "dmt"}}}}, "a setting changes the method or the seed"),
        (
            {"sweep": {"methods.supervised.train.stps": [1, 2]}},
            "none of the methods has the keys of the sweep's stps=1",
        ),
        ({"sweep": {"data.size": 64}}, "data.size.* is 64: input should be a valid"),
        ({"sweep": {"data.size": [64], "big": {"data.size": 128}}}, "sweep holds either"),
        ({"sweep": {"a b": {"data.size": 64}, "a-b": {"data.size": 128}}}, "made__all__supervised__a-b__seed-0"),
        ({"reference": "pgvcl"}, "reference is 'pgvcl', expected one of supervised"),
        ({"set": {"model.encodr": "resnet18"}}, r"small.yaml, made, supervised: there is no setting model.encodr"),
        ({"labelling": [{"every": 5}, {"every": 5}]}, "planned twice"),
        ({"set": {"method": {1: 2}}}, "method.1"),
        ({"format": 2}, "update Suture"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_plan(write(tmp_path, **keys))


def test_runs_made_with_other_settings_are_refused(tmp_path: Path) -> None:
    plan, out = read_plan(write(tmp_path)), tmp_path / "out"
    folder = out / "runs" / plan.runs[0].name
    folder.mkdir(parents=True)
    settings = plan.runs[0].config.model_dump(mode="json")
    elsewhere = settings | {"compute": {"workers": 7}, "data": settings["data"] | {"root": "../../../data"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(elsewhere))
    require_unchanged(plan, out)
    (folder / "config.yaml").write_text(yaml.safe_dump(elsewhere | {"seed": 5}))
    with pytest.raises(UserError, match=r"made__all__supervised__seed-0 \(seed: 5 → 0\)"):
        require_unchanged(plan, out)
    (folder / "config.yaml").write_text("")  # its run fails when its turn comes
    require_unchanged(plan, out)
