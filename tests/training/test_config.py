"""Config: complete defaults, presets, overrides, paths, and mistakes that are refused by name."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from suture.core.errors import UserError
from suture.data.labelling import LabellingSettings
from suture.methods.method import methods
from suture.methods.stage import Stage
from suture.training.config import differences, load_config, parse_config, relocated, set_value, setting_keys
from suture.training.presets import preset_text, presets

ONE_STAGE = sorted(name for name, kind in methods().items() if [*kind.Settings.model_fields] == ["train"])


def methods_of(preset: str | None) -> set[str]:
    """Methods that a preset has settings for, and that train; all methods where it has none."""
    stated = yaml.safe_load(preset_text(preset)) if preset else {}
    parent = methods_of(stated["preset"]) if "preset" in stated else set()
    return parent or set(stated.get("methods", methods())) - {"propagate"}


def refused(**said: object) -> str:
    with pytest.raises(UserError) as caught:
        parse_config({"data": {"root": "x"}, **said}, "c.yaml")
    return str(caught.value)


@pytest.mark.parametrize("method", sorted(methods()))
def test_defaults_are_complete_and_survive_a_round_trip(method: str) -> None:
    config = load_config(Path("somewhere"), overrides=[f"method={method}"])
    text = yaml.safe_dump(config.model_dump(mode="json"))
    assert parse_config(yaml.safe_load(text), "again") == config
    stated = set(setting_keys(methods()[method].Settings))
    assert {place.split(".")[0] for place in stated} == set(config.method) - {"name"}
    settings = config.build_method().settings.model_dump(mode="json")
    assert settings | {"name": method} == config.method


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("method", sorted(methods()))
def test_every_preset_fits_every_method(preset: str, method: str) -> None:
    config = load_config(Path("somewhere"), preset, [f"method={method}"])
    assert config.method["name"] == method
    assert list(config.build_method().stages())


def test_a_section_of_a_preset_is_undone_by_null() -> None:
    assert load_config(Path("x"), "vocalfolds").data.labelling.every == 10
    for override in ("data.labelling=null", "data.labelling.every=null"):
        config = load_config(Path("x"), "vocalfolds", [override])
        assert config.data.labelling == LabellingSettings()
        assert config.data.size == 256
    assert load_config(Path("x"), overrides=["data.labelling=null"]).data.labelling == LabellingSettings()


@pytest.mark.parametrize("preset", ["demo", "fast", "default", "best", "unimatch-v2"])
def test_a_preset_for_any_dataset_takes_all_its_labels(preset: str) -> None:
    assert load_config(Path("x"), preset).data.labelling == LabellingSettings()


def test_the_preset_of_unimatch_v2_has_its_published_optimizer() -> None:
    stage = next(load_config(Path("x"), "unimatch-v2", ["method=unimatch"]).build_method().stages())
    optimizer = stage.settings.optimizer
    assert (optimizer.kind, optimizer.lr, optimizer.weight_decay, optimizer.power) == ("adamw", 5e-6, 0.01, 0.9)
    assert (optimizer.decoder_factor, optimizer.head_factor) == (40, 40)


def test_the_paper_presets_say_what_the_paper_says() -> None:
    for name, every in (("endovis18", 20), ("cadis", 60)):
        config = load_config(Path("x"), name)
        assert config.method["name"] == "pgvcl"
        assert config.data.height_width == (480, 480)
        assert config.data.labelling.every == every
        contrast = config.method["contrast"]
        assert (contrast["epochs"], contrast["steps"], contrast["batch"]) == (140, None, 4)
        assert contrast["optimizer"] | {"kind": "lars", "lr": 1.0, "weight_decay": 1e-5} == contrast["optimizer"]
        assert config.method["pretrain"]["optimizer"]["kind"] == "sgd"


@pytest.mark.parametrize("preset", [None, *(name for name in presets() if name != "unimatch-v2")])
def test_methods_in_one_stage_learn_alike(preset: str | None) -> None:
    """A comparison from the defaults would flatter one that learns at a better rate; the paper's have its SGD."""
    one_stage = methods_of(preset).intersection(ONE_STAGE) | {"stitch"}
    found = {name: load_config(Path("x"), preset, [f"method={name}"]).method["train"] for name in one_stage}
    adamw = {name: stage["optimizer"] for name, stage in found.items() if stage["optimizer"]["kind"] == "adamw"}
    assert all(optimizer == adamw["stitch"] for optimizer in adamw.values())
    assert len({stage["steps"] for stage in found.values()}) == 1
    by_the_paper = {"supervised", "uamt"} if load_config(Path("x"), preset).method["name"] == "pgvcl" else set()
    assert one_stage - set(adamw) == by_the_paper


def test_supervised_stages_of_several_learn_more_slowly() -> None:
    for name, kind in methods().items():
        if name in methods_of(None).difference(ONE_STAGE):
            optimizers = [stage["optimizer"] for stage in kind.Settings().model_dump().values() if "optimizer" in stage]
            assert [one["lr"] for one in optimizers if one["kind"] == "adamw"] in ([], [1e-4], [1e-4, 1e-4])


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        (
            "pgvcl",
            [
                "method.contrast.batch: 4 → 16",
                "method.contrast.accumulate: 1 → 2",
                "method.contrast.keys.mode: paper → shared",
            ],
        ),
        ("unimatch", ["method.train.accumulate: 1 → 2"]),
        ("stitch", []),
    ],
)
def test_a_preset_may_build_on_another(method: str, changed: list[str]) -> None:
    large, small = (load_config(Path("x"), name, [f"method={method}"]) for name in ("endovis18", "endovis18-12gb"))
    assert differences(large.model_dump(), small.model_dump()) == changed


@pytest.mark.parametrize("preset", [None, *presets()])
@pytest.mark.parametrize("method", sorted({*methods()} - {"propagate"}))  # it trains nothing
def test_every_method_has_as_many_supervised_steps_as_the_baseline(preset: str | None, method: str) -> None:
    """Otherwise a preset would favour the methods it forgets, or those it does not."""
    if method not in methods_of(preset):
        pytest.skip("the preset has no settings for this method")
    between = ("contrast", "propagation")  # these learn from no label
    total = {}
    for name in ("supervised", method):
        stages = load_config(Path("x"), preset, [f"method={name}"]).build_method().stages()
        total[name] = sum(
            stage.settings.steps or 0
            for stage in stages
            # Of the two models of DMT, A is handed on.
            if isinstance(stage, Stage) and stage.name not in between and not stage.name.endswith("-b")
        )
    assert total[method] == total["supervised"]


def test_a_partial_section_keeps_the_rest_of_its_defaults() -> None:
    config = load_config(Path("x"), overrides=["method=pgvcl", "method.contrast.optimizer.lr=0.5"])
    assert config.method["contrast"]["optimizer"]["kind"] == "lars"
    assert config.method["contrast"]["optimizer"]["lr"] == 0.5


def test_a_length_in_steps_replaces_one_in_epochs_and_a_labelling_another() -> None:
    config = load_config(Path("x"), "endovis18", ["method.contrast.steps=7", "data.labelling.ratio=0.1"])
    assert (config.method["contrast"]["steps"], config.method["contrast"]["epochs"]) == (7, None)
    assert (config.data.labelling.ratio, config.data.labelling.every) == (0.1, None)


@pytest.mark.parametrize("name", ["c.yaml", "C.YML"])
def test_overrides_are_yaml_and_go_over_preset_and_file(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text("preset: demo\nseed: 1\nmethod: supervised\ndata: {root: d, size: 64}\n")
    demo = load_config(Path("x"), "demo", ["method=supervised"])
    assert demo.data.size != 64
    assert load_config(file).data.size == 64
    config = load_config(file, overrides=["data.size=[32, 48]", "method.train.optimizer.lr=1e-3", "seed=5"])
    assert config.data.height_width == (32, 48)
    assert config.method["train"]["optimizer"]["lr"] == 1e-3  # which YAML reads as text
    assert config.method["train"]["steps"] == demo.method["train"]["steps"]
    assert config.seed == 5
    assert load_config(file, overrides=["compute.precision=32"]).compute.precision == "32"  # which it reads as a number
    assert load_config(file, "vocalfolds").model.encoder == "resnet50"  # --preset goes before the file's


@pytest.mark.parametrize(
    "override", ["seed", "=3", "a..b=3", ".a=3", "seed.x=3", "data.size=[", "a=2024-31-12", "data.root.x=1"]
)
def test_a_malformed_override_is_refused(override: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"the settings given: found '{override}', ")):
        load_config(Path("x"), overrides=["seed=0", override])


def test_settings_of_several_methods_in_one_file() -> None:
    said = {
        "data": {"root": "x"},
        "methods": {"supervised": {"train": {"steps": 9}}, "stitch": {"train": {"steps": 3}}},
    }
    assert parse_config(said | {"method": "supervised"}, "c").method["train"]["steps"] == 9
    assert parse_config(said, "c").method["train"]["steps"] == 3
    assert parse_config(said | {"method": {"train": {"steps": 4}}}, "c").method["train"]["steps"] == 4


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        (
            {"data": {"root": "x", "sizes": 32}, "computer": {}, "seed": -1},
            [
                "there is no setting computer (did you mean compute?)",
                "there is no setting data.sizes (did you mean data.size?)",
                "seed is -1: input should be greater than or equal to 0",
            ],
        ),
        (
            {"method": {"train": {"epoch": 3}, "contrast": {"lr": 1}}},
            [
                "there is no setting method.contrast",
                "there is no setting method.train.epoch (did you mean method.train.epochs?)",
            ],
        ),
        (
            {"methods": {"supervised": {"trian": {}}}},
            ["there is no setting methods.supervised.trian (did you mean methods.supervised.train?)"],
        ),
    ],
)
def test_unknown_keys_and_wrong_values_are_listed_together(settings: dict[str, Any], problems: list[str]) -> None:
    expected = {re.sub(r"mean (\w+\.)+", "mean ", f"c.yaml: {problem}.") for problem in problems}
    assert set(refused(**settings).splitlines()) == expected


def test_impossible_values_are_refused_by_name() -> None:
    assert refused(data={"root": "x", "size": "big"}).startswith("c.yaml: data.size is 'big': input should be")
    assert "data.size is [8, 64]: sides below 16" in refused(data={"root": "x", "size": [8, 64]})
    assert "data.root is missing" in refused(data={"size": 32})
    assert "data is 7" in refused(data=7)
    assert "method is [1]" in refused(method=[1])
    assert "c.yaml: method: there is no 'pgvc' (did you mean pgvcl?); the methods are" in refused(method="pgvc")
    assert "c.yaml: method: there is no 'pgvc'" in refused(methods={"pgvc": {}})
    assert "there is no setting methods.supervised.trian" in refused(methods={"supervised": {"trian": {}}})
    assert "other_videos: all needs mode: bank" in refused(
        methods={"pgvcl": {"contrast": {"keys": {"other_videos": "all"}}}}
    )
    assert "'wild' is not one of" in refused(method={"train": {"augment": {"color": "wild"}}})
    assert "either steps or epochs" in refused(method={"train": {"steps": 3, "epochs": 3}})
    assert "batch 3 is not divisible" in refused(method={"train": {"batch": 3, "accumulate": 2}})
    assert "methods.pgvcl.contrast: best_every cannot be used here" in refused(
        methods={"pgvcl": {"contrast": {"best_every": 5}}}
    )
    assert "best_every cannot be used here" in refused(methods={"pixpro": {"propagation": {"best_every": 5}}})
    assert "every and ratio are given" in refused(data={"root": "x", "labelling": {"every": 3, "ratio": 0.2}})
    assert "compute.logger.kind is missing" in refused(compute={"logger": {}})
    assert "compute.logger.kind is 'json.JSONDecoder'" in refused(compute={"logger": {"kind": "json.JSONDecoder"}})
    assert "evaluation.splits.0 is 'train'" in refused(evaluation={"splits": ["train"]})
    assert "evaluation.scales" in refused(evaluation={"scales": []})
    assert "preset: there is no 'endovis' (did you mean endovis18?); the presets are" in _preset_refused("endovis")


def _preset_refused(name: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(Path("x"), name)
    return str(caught.value)


def test_a_preset_that_there_is_not_is_told_by_who_named_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("preset: dmo\ndata: {root: x}\n")
    for named, where in ((None, str(file)), ("dem", "the command line")):
        with pytest.raises(UserError) as caught:
            load_config(file, named, origin="the command line")
        assert str(caught.value).startswith(f"{where}: preset: there is no {named or 'dmo'!r} (did you mean demo?); ")


def test_a_section_without_lines_says_nothing() -> None:
    said = {"data": {"root": "x"}, "compute": None, "method": None, "methods": None, "evaluation": {"scales": [1]}}
    assert parse_config(said, "c") == load_config(Path("x"))


def test_a_rate_by_the_encoder_is_known_for_adamw_alone() -> None:
    assert "lr is needed with sgd" in refused(method={"name": "stitch", "train": {"optimizer": {"kind": "sgd"}}})


def test_no_dataset_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="no dataset is named"):
        load_config()


def test_another_format_is_refused() -> None:
    assert refused(format=2) == "c.yaml: format is 2: input should be 1."


def test_the_dataset_file_stands_for_its_folder(tmp_path: Path) -> None:
    (tmp_path / "dataset.yaml").write_text("format: 1\n")
    assert load_config(tmp_path / "dataset.yaml").data.root == tmp_path / "dataset.yaml"


def test_paths_are_relative_to_the_config_and_those_of_set_to_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "configs").mkdir()
    file = tmp_path / "configs" / "c.yaml"
    file.write_text(
        "data: {root: ../data/d, cache: cache, labelling: {list: labels.txt}}\nmodel: {weights: weights/r50.pth}\n"
    )
    monkeypatch.chdir(tmp_path / "here")
    config = load_config(Path("../configs/c.yaml"))
    assert config.data.root == Path("../data/d")
    assert config.data.cache == Path("../configs/cache")
    assert config.data.labelling.list == Path("../configs/labels.txt")
    assert config.model.weights == "../configs/weights/r50.pth"
    assert load_config(file, overrides=["data.root=d"]).data.root == Path("d")
    file.write_text(f"data: {{root: {tmp_path}/data}}\nmodel: {{weights: imagenet}}\n")
    assert load_config(file).data.root == tmp_path / "data"
    assert load_config(file).model.weights == "imagenet"


def test_relocated_there_and_back(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    said = {"data": {"root": "d"}, "model": {"weights": "r.pth"}}
    inside = relocated(said, tmp_path, tmp_path / "link")  # a folder on another disk, as run folders often are
    assert inside == {"data": {"root": "../../d"}, "model": {"weights": "../../r.pth"}}
    assert relocated(inside, tmp_path / "link", tmp_path) == said
    assert relocated(said, tmp_path, None)["data"]["root"] == f"{tmp_path.resolve()}/d"
    assert said == {"data": {"root": "d"}, "model": {"weights": "r.pth"}}


def test_differences_name_the_place() -> None:
    before, after = {"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 1, "c": 3}, "e": 4, "d": [1]}
    assert differences(before, after) == ["a.c: 2 → 3", "e: null → 4"]
    section = {"strong": {"crop": [0.5, 1.0], "color": {"hue": 0.1}}}
    assert differences({"strong": None}, section) == ["strong.crop: null → [0.5, 1.0]", "strong.color.hue: null → 0.1"]
    assert differences(section, {}) == ["strong.crop: [0.5, 1.0] → null", "strong.color.hue: 0.1 → null"]
    assert differences(section, {"strong": 0}) == ['strong: {"crop": [0.5, 1.0], "color": {"hue": 0.1}} → 0']


def test_set_value_makes_sections_as_needed() -> None:
    said: dict[str, object] = {"method": "supervised", "data": None}
    set_value(said, "method.train.steps=3", "here")
    set_value(said, "data.size=64", "here")
    assert said == {"method": {"name": "supervised", "train": {"steps": 3}}, "data": {"size": 64}}


@pytest.mark.parametrize("value", ["[1", "2024-31-12", "[" * 3000 + "]" * 3000, "{a: 1, a: 2}"])
def test_a_value_that_is_no_yaml(value: str) -> None:
    with pytest.raises(UserError, match=r"^here: found 'seed=.{1,80}', whose value is not valid YAML\.$"):
        set_value({}, f"seed={value}", "here")
