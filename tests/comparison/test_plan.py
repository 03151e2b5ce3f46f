"""Which runs a comparison file plans, and what it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from suture.comparison.plan import Place, read_plan, require_unchanged
from suture.core.errors import UserError
from suture.core.io import write_text

RESULTS = Path(__file__).parents[2] / "docs/results"
SMALL = {"datasets": {"made": {"root": "data"}}, "methods": ["supervised"], "seeds": [0]}


def write(folder: Path, **said: Any) -> Path:
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL | said, sort_keys=False))
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
    assert plan.reference == "supervised"
    assert [run.name for run in plan.runs[:4]] == [
        "a__every-20__supervised__seed-3",
        "a__ratio-0.05__supervised__seed-3",
        "a__every-20__pgvcl__seed-3",
        "a__ratio-0.05__pgvcl__seed-3",
    ]
    assert len(plan.runs) == 2 * 2 * 2 * 2
    assert [run.place.seed for run in plan.runs] == [3] * 8 + [1] * 8
    last = plan.runs[-1].config
    assert (last.seed, last.method["name"], last.data.options) == (1, "pgvcl", {"protocol": "patients"})
    assert (last.data.labelling.every, last.data.labelling.ratio) == (None, 0.05)  # instead of the preset's every 10
    assert last.method["contrast"]["epochs"] == 20  # from the preset
    assert last.data.root.resolve() == tmp_path / "y"


def test_what_is_said_last_counts(tmp_path: Path) -> None:
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
    for wrong, said in {"longr": "'longr' (did you mean longer?)", "dmt": "'dmt'"}.items():  # known, not of this file
        with pytest.raises(UserError) as refused:
            plan.only(["pgvcl", wrong])
        expected = "expected one of the file's methods (supervised, longer, pgvcl) or a run that --list shows."
        assert str(refused.value) == f"--only is {said}, {expected}"


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


def test_points_of_a_sweep_may_have_names(tmp_path: Path) -> None:
    points = {"P0N0": {"method.contrast.keys": {"same_shot": 0, "other_videos": 0}}, "big": {"data.size": 512}}
    runs = read_plan(write(tmp_path, methods=["pgvcl"], sweep=points)).runs
    assert [run.place.point for run in runs] == ["P0N0", "big"]
    assert runs[0].config.method["contrast"]["keys"]["same_shot"] == 0
    assert runs[1].config.data.size == 512


@pytest.mark.parametrize(
    "sweep",
    [
        {"methods.pgvcl.contrast.keys.other_videos": [0, 4]},
        {"methods": {"pgvcl": {"contrast": {"keys": {"other_videos": [0, 4]}}}}},
        {"method": {"contrast": {"keys": {"other_videos": [0, 4]}}}},
    ],
)
def test_a_key_may_be_swept_in_every_spelling(sweep: dict[str, Any], tmp_path: Path) -> None:
    """Over what the method's own settings say; a method that has it not is run once."""
    bank = {"method": "pgvcl", "set": {"method.contrast.keys": {"mode": "bank", "other_videos": 2}}}
    runs = read_plan(write(tmp_path, methods={"twice": None, "bank": bank}, sweep=sweep)).runs
    assert [run.place[2:4] for run in runs] == [("twice", ""), ("bank", "other_videos=0"), ("bank", "other_videos=4")]
    keys = [run.config.method["contrast"]["keys"] for run in runs[1:]]
    assert [(one["other_videos"], one["mode"]) for one in keys] == [(0, "bank"), (4, "bank")]


def test_so_may_the_settings_of_a_point_of_which_a_method_takes_its_own(tmp_path: Path) -> None:
    sweep = {
        "alone": {"method": {"contrast": {"keys": {"mode": "shared"}}}},
        "both": {"methods": {"twice": {"finetune": {"steps": 3}}}, "methods.pgvcl.finetune.steps": 4, "data.size": 64},
    }
    runs = read_plan(write(tmp_path, methods=["supervised", "twice", "pgvcl"], sweep=sweep)).runs
    assert [run.place[2:4] for run in runs] == [
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
    assert [run.place[2:4] for run in runs] == [
        ("supervised", "a"),
        ("supervised", "c"),
        ("pgvcl", "a"),
        ("pgvcl", "b"),
        ("pgvcl", "c"),
    ]


@pytest.mark.parametrize(
    "sweep",
    [
        {"methods.pgvcl": {"contrast.keys.other_videos": [0, 4]}},
        {"method.contrast": {"keys": {"other_videos": [0, 4]}}},
        {"method": [{"contrast": {"keys": {"other_videos": 0}}}, {"contrast": {"keys": {"other_videos": 4}}}]},
    ],
)
def test_sections_may_be_dotted_in_part(tmp_path: Path, sweep: dict[str, Any]) -> None:
    first, second = read_plan(write(tmp_path, methods=["pgvcl"], sweep=sweep)).runs
    assert [run.config.method["contrast"]["keys"]["other_videos"] for run in (first, second)] == [0, 4]


def test_a_name_that_is_too_long_for_its_files_is_refused(tmp_path: Path) -> None:
    """The longest that is not can be written."""
    longest = "m" * (236 - len("made__all____seed-0"))
    (name,) = names(write(tmp_path, methods={longest: {"method": "supervised"}}))
    write_text(tmp_path / "configs" / f"{name}.yaml", "")
    (tmp_path / f"{name}.log").touch()
    refused = r"small.yaml: the name of the run (\S+) has 237 bytes, expected 236 at most, .*: shorten the names that"
    with pytest.raises(UserError, match=refused):
        read_plan(write(tmp_path, methods={f"m{longest}": {"method": "supervised"}}))
    many = {"method.train.augment.tilt": [10], "data.store_size": [100]}
    with pytest.raises(
        UserError, match="at most, as files are called by it: give the points of the sweep names, or shorten"
    ):
        read_plan(write(tmp_path, methods={longest: {"method": "supervised"}}, sweep=many))


@pytest.mark.parametrize("point", ["", "other_videos=all", "same_shot=1,other_videos=4"])
def test_a_name_tells_the_place(point: str) -> None:
    place = Place("vocal_folds", "every-10", "pgv-cl", point, 12)
    assert Place.of_name(place.name) == place
    assert Place.of_name("vocalfolds-pgvcl-0") is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"method": ["supervised"]}, r"there is no key 'method' \(did you mean methods\?\)"),
        ({"methods": {"a": {"method": "twice", "sed": [1]}}}, r"'methods.a.sed' \(did you mean seeds\?\)"),
        ({"datasets": {}}, "datasets is {}: "),
        ({"methods": ["a/b"]}, "use letters, digits"),
        ({"methods": ["a__b"]}, "use letters, digits"),
        (
            {"methods": ["supervisd"]},
            r"small.yaml, made, supervisd: method: there is no 'supervisd' \(did you mean supervised\?\); the",
        ),
        (
            {"preset": "vocalfold"},
            r"small.yaml, made, supervised: preset: there is no 'vocalfold' \(did you mean vocal",
        ),
        (
            {"methods": ["supervisd"], "set": {"sed": 1}},
            "small.yaml, made, supervisd: there is no setting sed; did you",
        ),
        ({"methods": ["supervised", "supervised"]}, "supervised stands twice"),
        ({"seeds": [0, 0]}, "a seed stands twice"),
        ({"seeds": 0}, "seeds is 0: expected a list"),
        ({"sweep": {"seed": [1, 2]}}, r"small.yaml: sweep holds the key seed, .*: list it under seeds\.$"),
        ({"sweep": {"one": {"data.size": 64, "seed": 1}}}, "sweep.one holds the key seed"),
        ({"methods": {"a": {"method": "twice", "set": {"seed": 1}}}}, "methods.a.set holds the key seed"),
        ({"set": {"seed": 1}}, "small.yaml: set holds the key seed"),
        (
            {"sweep": {"method": ["supervised", "twice"]}},
            r"sweep holds the key method, which names .* under methods\.$",
        ),
        ({"sweep": {"method": {"name": ["supervised", "twice"]}}}, "sweep holds the key method.name, which names"),
        (
            {"sweep": {"methods.supervised": [{"name": "twice"}, {"name": "supervised"}]}},
            "sweep holds the key methods.supervised.name, which names the method",
        ),
        ({"sweep": {"one": {"method.name": "twice"}}}, "sweep.one holds the key method.name, which names the method"),
        (
            {"methods": {"a": {"method": "twice", "set": {"method": "dmt"}}}},
            "methods.a.set holds the key method, which",
        ),
        (
            {"sweep": {"methods.supervisd.train.steps": [1, 2]}},
            r"sweep holds settings of 'supervisd' \(did you mean supervised\?\), expected a method of the file",
        ),
        ({"sweep": {"methods.supervised.train.stps": [1, 2]}}, "there is no setting method.train.stps; did you mean"),
        (
            {
                "methods": ["twice", "pgvcl"],
                "sweep": {"methods.twice.finetune.steps": [1, 2], "methods.pgvcl.contrast.epochs": [3]},
            },
            "small.yaml, made, pgvcl: the sweep's steps=1,epochs=3 and steps=2,epochs=3 come to the same run",
        ),
        ({"sweep": {"model": {"encoder": "resnet18"}}}, "model.encoder is 'resnet18', expected a list of values"),
        (
            {"sweep": {"data": {"data.size": 64}, "b": {"data.size": 128}}},
            "a point cannot be called data, as a section",
        ),
        ({"sweep": {"evaluation": {"evaluation.scales": [1.0]}}}, "a point cannot be called evaluation, as a section"),
        (
            {"sweep": {"a": {"method.train.augment.color": "mild", "method.contrast.keys.viws": 1}}},
            r"none of the methods has the keys of the sweep's a: method.contrast.keys.viws\b",
        ),
        (
            {"sweep": {"a": {"method.train.optimizer": {"kind": "adamw", "lrr": 1}}}},
            r"sweep's a: method.train.optimizer.lrr \(did you mean method.train.optimizer.lr\?\); check their spelling",
        ),
        ({"sweep": {"data.size": 64}}, "data.size is 64, expected a list of values"),
        ({"reference": "pgvcl"}, "reference is 'pgvcl', expected one of supervised"),
        (
            {"set": {"model.encodr": "resnet18"}},
            r"small.yaml, made, supervised: there is no setting model.encodr; did you",
        ),
        ({"sweep": {"method.contrast.keys.views": [1, 2]}}, "none of the methods has the keys of the sweep's views=1"),
        ({"sweep": {"data.size": [64], "big": {"data.size": 128}}}, "sweep holds either"),
        ({"sweep": {"small": {"data.size": 64}, "usual": {}}}, "sweep.usual is empty: give it a value or a setting"),
        ({"sweep": {"data.size": [64, -4]}}, r"size=-4: data.size is -4"),
        ({"labelling": [{"every": 5}, {"every": 5}]}, "planned twice"),
        ({"sweep": {"a b": {"data.size": 64}, "a-b": {"data.size": 128}}}, "two points of the sweep, come to the same"),
        ({"set": {"method": {1: 2}}}, "the key 1 is no text: settings have names; put quotes around a name of digits"),
        ({"sweep": {1: [64]}}, "the key 1 is no text"),
        ({"methods": {"twice": {"method": "twice", "set": {"data": {True: 1}}}}}, "the key True is no text"),
        ({"format": 2}, "update Suture"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, said: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_plan(write(tmp_path, **said))


def test_runs_made_with_other_settings_are_refused(tmp_path: Path) -> None:
    file, out = write(tmp_path), tmp_path / "out"
    plan = read_plan(file)
    folder = out / "runs" / plan.runs[0].name
    folder.mkdir(parents=True)
    said = plan.runs[0].config.model_dump(mode="json")
    del said["evaluation"]["flip"]  # an older version knew no such setting: its default is what it did
    other_machine = said | {"compute": {"workers": 7}, "data": said["data"] | {"root": "../../../data"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(other_machine))
    require_unchanged(plan, out)
    collected = said | {"data": said["data"] | {"root": "data"}}  # of whose paths only names are left
    (folder / "config.yaml").write_text(yaml.safe_dump(collected))
    require_unchanged(plan, out)
    (folder / "config.yaml").write_text(yaml.safe_dump(other_machine | {"seed": 5}))
    with pytest.raises(UserError, match=r"made__all__supervised__seed-0 \(seed: 5 → 0\): give another folder"):
        require_unchanged(plan, out)


def test_scores_of_a_run_with_settings_that_are_gone_are_refused(tmp_path: Path) -> None:
    """A config that is damaged stops no other run; nor does one that nothing was scored with yet."""
    file, out = write(tmp_path), tmp_path / "out"
    plan = read_plan(file)
    folder = out / "runs" / plan.runs[0].name
    folder.mkdir(parents=True)
    said = plan.runs[0].config.model_dump(mode="json")
    said["method"]["train"]["charm"] = 1
    (folder / "config.yaml").write_text(yaml.safe_dump(said))
    require_unchanged(plan, out)
    (folder / "metrics.json").write_text("{}")
    with pytest.raises(UserError, match=r"config\.yaml: there is no setting method\.train\.charm"):
        require_unchanged(plan, out)
    (folder / "config.yaml").write_text("")
    require_unchanged(plan, out)


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_our_own_comparisons_can_be_run_or_say_at_which_commit(file: Path) -> None:
    said = re.search("^# at commit (.*)", file.read_text(), re.MULTILINE)
    if said is None:
        assert read_plan(file).runs
        return
    ran = (json.loads(run.read_text()) for run in (RESULTS / file.stem / "runs").glob("*/environment.json"))
    assert {run["starts"][0]["commit"][:7] for run in ran} == set(re.findall(r"\b[0-9a-f]{7}\b", said[1]))
