"""Config: complete defaults, presets, overrides, paths, and mistakes that are refused by name."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from suture.core.errors import UserError
from suture.core.io import write_text
from suture.data.labelling import LabellingSettings
from suture.methods.method import methods
from suture.methods.stage import Stage
from suture.training.config import FORMAT, Config, _places, differences, load_config, parse_config, relocated
from suture.training.overrides import set_value
from suture.training.presets import presets
from suture.training.run_folder import Run

DOCS = Path(__file__).resolve().parents[2] / "docs"
ONE_STAGE = sorted(name for name, kind in methods().items() if [*kind.Settings.model_fields] == ["train"])


def refused(**said: object) -> str:
    with pytest.raises(UserError) as caught:
        parse_config({"data": {"root": "x"}, **said}, "c.yaml")
    return str(caught.value)


@pytest.mark.parametrize("method", sorted(methods()))
def test_defaults_are_complete_and_survive_a_round_trip(method: str) -> None:
    config = load_config(Path("somewhere"), overrides=[f"method={method}"])
    text = yaml.safe_dump(config.model_dump(mode="json"))
    assert parse_config(yaml.safe_load(text), "again") == config
    stated = set(_places(methods()[method].Settings))
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


@pytest.mark.parametrize("preset", ["demo", "fast"])
def test_a_preset_for_any_dataset_takes_all_its_labels(preset: str) -> None:
    assert load_config(Path("x"), preset).data.labelling == LabellingSettings()


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


@pytest.mark.parametrize("preset", [None, *presets()])
def test_methods_in_one_stage_learn_alike(preset: str | None) -> None:
    """A comparison from the defaults would flatter one that learns at a better rate; the paper's have its SGD."""
    found = {name: load_config(Path("x"), preset, [f"method={name}"]).method["train"] for name in ONE_STAGE}
    adamw = {name: stage["optimizer"] for name, stage in found.items() if stage["optimizer"]["kind"] == "adamw"}
    assert all(optimizer == adamw["stitch"] for optimizer in adamw.values())
    assert len({stage["steps"] for stage in found.values()}) == 1
    by_the_paper = {"supervised", "uamt"} if load_config(Path("x"), preset).method["name"] == "pgvcl" else set()
    assert set(ONE_STAGE) - set(adamw) == by_the_paper


def test_supervised_stages_of_several_learn_more_slowly() -> None:
    for name, kind in methods().items():
        if name not in ONE_STAGE:
            optimizers = [stage["optimizer"] for stage in kind.Settings().model_dump().values() if "optimizer" in stage]
            assert [one["lr"] for one in optimizers if one["kind"] == "adamw"] in ([1e-4], [1e-4, 1e-4])


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
@pytest.mark.parametrize("method", sorted(methods()))
def test_every_method_has_as_many_supervised_steps_as_the_baseline(preset: str | None, method: str) -> None:
    """Otherwise a preset would favour the methods it forgets, or those it does not."""
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


def test_several_mistakes_are_listed_together_with_what_was_probably_meant() -> None:
    elsewhere = refused(data={"root": "x", "sizes": 32}, method={"train": {"epoch": 3}}, computer={}, seed=-1)
    assert sorted(elsewhere.splitlines()) == [
        "c.yaml: seed is -1: expected a number greater than or equal to 0.",
        "c.yaml: there is no setting computer; did you mean compute?",
        "c.yaml: there is no setting data.sizes; did you mean data.size?",
    ]
    of_methods = refused(
        method={"train": {"epoch": 3, "lr": 1}, "contrast": {"lr": 1}}, methods={"supervised": {"trian": {}}}
    )
    assert sorted(of_methods.splitlines()) == [
        "c.yaml: there is no setting method.contrast in stitch, only in pgvcl: choose another method, or set what "
        "stitch has (train).",
        "c.yaml: there is no setting method.train.epoch; did you mean method.train.epochs?",
        "c.yaml: there is no setting method.train.lr; did you mean method.train.optimizer.lr?",
        "c.yaml: there is no setting methods.supervised.trian; did you mean methods.supervised.train?",
    ]


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("compute.device=cuda", "compute.device; compute has accelerator, precision, compile, workers, "),
        ("data.labelling.frames=3", "data.labelling.frames; data.labelling has every, ratio and list."),
        ("method.warmup.steps=3", "method.warmup; method has train."),
        ("gpu=1", "gpu; a config has format, seed, method, data, "),
    ],
)
def test_where_no_name_comes_near_those_of_the_section_are_listed(override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"the command line: there is no setting {sentence}")):
        load_config(Path("x"), overrides=["method=supervised", override], origin="the command line")


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("lr=0.1", "method.train.optimizer.lr"),
        ("steps=5", "method.train.steps"),
        ("train.steps=5", "method.train"),
        ("batch=4", "method.train.batch or evaluation.batch"),
        ("encoder=resnet18", "model.encoder"),
    ],
)
def test_a_short_key_names_the_whole_ones_that_it_may_mean(override: str, meant: str) -> None:
    with pytest.raises(UserError) as caught:
        load_config(Path("x"), overrides=["method=supervised", override], origin="the command line")
    key = re.split("[.=]", override)[0]
    assert str(caught.value) == f"the command line: there is no setting {key}; did you mean {meant}?"


def test_impossible_values_are_refused_by_name() -> None:
    assert refused(data={"root": "x", "size": "big"}).startswith("c.yaml: data.size is 'big': expected")
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
    assert "methods.pgvcl.contrast: best_every needs a class" in refused(
        methods={"pgvcl": {"contrast": {"best_every": 5}}}
    )
    assert "best_every needs a class" in refused(methods={"pixpro": {"propagation": {"best_every": 5}}})
    assert "every and ratio are both given" in refused(data={"root": "x", "labelling": {"every": 3, "ratio": 0.2}})
    assert "compute.logger.kind is missing" in refused(compute={"logger": {}})
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


def test_what_has_become_the_only_way_may_still_be_said() -> None:
    # As runs of earlier versions do.
    said = {"data": {"root": "x", "store": True}, "compute": {"channels_last": True, "workers": 2}}
    assert parse_config(said, "c") == load_config(Path("x"), overrides=["compute.workers=2"])
    assert refused(compute={"channels_last": False}).startswith("c.yaml: there is no setting compute.channels_last; ")
    assert refused(data={"root": "x", "store": False}) == (
        "c.yaml: data: store is gone, frames are always kept in the frame store: remove the line, and where its disk "
        "has no room, set cache to a folder on another."
    )


@pytest.mark.parametrize("method", ["strong", "stitch"])
def test_a_run_of_an_earlier_format_goes_on_as_it_began(method: str, tmp_path: Path) -> None:
    """What format 1 did not know did not happen in its runs, whatever is the default since."""
    said = parse_config({"data": {"root": "data"}, "method": method}, "here").model_dump(mode="json")
    views = ("augment", "strong")
    assert all(said["method"]["train"][view].pop("tilt") > 0 for view in views)
    said["format"] = 1
    write_text(tmp_path / "config.yaml", yaml.safe_dump(said))
    for config in (Run(tmp_path).config, load_config(tmp_path / "config.yaml")):
        assert config.format == FORMAT
        assert [config.method["train"][view]["tilt"] for view in views] == [0, 0]
    asked = load_config(tmp_path / "config.yaml", overrides=["method.train.strong.tilt=15"])
    assert [asked.method["train"][view]["tilt"] for view in views] == [0, 15]
    said["method"]["train"] |= {"tilt": 20.0, "doubt": 0.0}  # as they were for a while
    config = parse_config(said, "here")
    assert [config.method["train"][view]["tilt"] for view in views] == [20, 20]
    assert "doubt" not in config.method["train"]


@pytest.mark.parametrize("method", ["strong", "stitch"])
@pytest.mark.parametrize(
    ("encoder", "lr", "expected"), [("resnet50", 3e-4, None), ("resnet50", 1e-4, 1e-4), ("mit_b0", 3e-4, 3e-4)]
)
def test_a_run_keeps_the_rate_that_was_a_default(method: str, encoder: str, lr: float, expected: float | None) -> None:
    """Null, which is the default since, means 3e-4 for ResNets and less for transformers."""
    asked = {"data": {"root": "data"}, "method": method, "model": {"encoder": encoder}}
    said = parse_config(asked, "here").model_dump(mode="json")
    assert said["method"]["train"]["optimizer"]["lr"] is None
    said["method"]["train"]["optimizer"]["lr"] = lr
    assert parse_config(said | {"format": 2}, "here").method["train"]["optimizer"]["lr"] == expected
    assert parse_config(said, "here").method["train"]["optimizer"]["lr"] == lr  # what is said now is meant


@pytest.mark.parametrize("method", ["supervised", "uamt", "unimatch"])
@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize(
    ("optimizer", "expected"), [({}, 1e-4), ({"kind": "sgd"}, 1e-4), ({"lr": 3e-4}, 3e-4), ({"lr": None}, None)]
)
def test_a_config_of_an_earlier_format_keeps_its_rate(
    method: str, before: int, optimizer: dict[str, object], expected: float | None
) -> None:
    train = {"steps": 10, "optimizer": optimizer}
    for said in (
        {"method": {"name": method, "train": train}},
        {"method": method, "methods": {method: {"train": train}}},
    ):
        config = parse_config({"format": before, "data": {"root": "x"}, **said}, "here")
        assert (config.method["train"]["optimizer"]["lr"], config.format) == (expected, FORMAT)
    parse_config({"format": before, "data": {"root": "x"}, "methods": {method: {"train": train}}}, "of others, too")


@pytest.mark.parametrize("method", ["strong", "stitch"])
@pytest.mark.parametrize(
    ("before", "hard_from", "neighbours"), [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 1), (4, 0.5, 1), (5, 1, 2), (6, 0.5, 1)]
)
def test_a_run_keeps_the_recipe_of_its_time(method: str, before: int, hard_from: float, neighbours: int) -> None:
    def train(said: dict[str, object]) -> dict[str, Any]:
        asked = {"format": before, "data": {"root": "x"}, "method": {"name": method, "train": said}}
        return parse_config(asked, "here").method["train"]

    assert train({})["hard_from"] == hard_from
    assert [train({"hard_from": stated})["hard_from"] for stated in (0.5, 1)] == [0.5, 1]
    if method == "stitch":
        assert train({})["correspondence"]["neighbours"] == neighbours
        stated = [train({"correspondence": {"neighbours": count}}) for count in (1, 2)]
        assert [said["correspondence"]["neighbours"] for said in stated] == [1, 2]
        assert [said["hard_from"] for said in stated] == [hard_from] * 2


@pytest.mark.parametrize("method", ["strong", "stitch"])
@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_settings_that_are_gone_may_be_said_where_they_did_nothing(method: str, before: int) -> None:
    def train(said: dict[str, object]) -> dict[str, Any]:
        asked = {"format": before, "data": {"root": "x"}, "method": {"name": method, "train": said}}
        return parse_config(asked, "here").method["train"]

    assert not {"paste", "frozen_norms"} & train({"paste": 0.0, "frozen_norms": False}).keys()
    with pytest.raises(UserError, match=r"there is no setting method\.train\.paste"):
        train({"paste": 0.5})


@pytest.mark.parametrize(("before", "hard_from"), [(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.5), (5, 1)])
def test_a_file_for_several_methods_keeps_the_recipe_of_its_time(before: int, hard_from: float) -> None:
    def parsed(method: object, **methods: object) -> dict[str, Any]:
        return parse_config(
            {"format": before, "data": {"root": "x"}, "method": method, "methods": methods}, "here"
        ).method

    stated = 1.5 - hard_from  # the other one
    ours = {"train": {"paste": 0, "frozen_norms": False, "doubt": 0.0, "hard_from": stated}}
    assert parsed("stitch", stitch=ours)["train"]["hard_from"] == stated
    assert parsed("stitch", strong=ours)["train"]["hard_from"] == hard_from
    assert parsed("supervised", strong=ours, stitch=None)["name"] == "supervised"
    for mistake in ({"train": "2000"}, 3):
        with pytest.raises(UserError, match=r"expected (a mapping|settings by name)"):
            parsed("stitch", stitch=mistake)


def test_a_rate_by_the_encoder_is_known_for_adamw_alone() -> None:
    assert "lr is needed with sgd" in refused(method={"name": "stitch", "train": {"optimizer": {"kind": "sgd"}}})


@pytest.mark.parametrize("method", [{}, {"method": None}, {"method": {"train": {"batch": 4}}}, {"method": "stitch"}])
def test_the_default_method_of_an_earlier_format_is_upright_too(method: dict[str, object]) -> None:
    config = parse_config({"format": 1, "data": {"root": "x"}, **method}, "here")
    assert config.method["train"]["strong"]["tilt"] == 0
    several = {"stitch": {"train": {"strong": {"tilt": 20}}}}
    config = parse_config({"format": 1, "data": {"root": "x"}, **method, "methods": several}, "here")
    assert [config.method["train"][view]["tilt"] for view in ("augment", "strong")] == [0, 20]
    assert refused(format=1, method=3) == refused(method=3)


def test_no_dataset_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="no dataset is named"):
        load_config()


def test_a_comparison_file_is_known_as_one(tmp_path: Path) -> None:
    file = tmp_path / "cmp.yaml"
    file.write_text("datasets: {mine: {root: videos}}\nmethods: [supervised]\n")
    with pytest.raises(UserError, match=rf"is a comparison file, expected a config file: .* `suture compare {file}`\."):
        load_config(file)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"format: {FORMAT + 1}\ndata: {{root: d}}\n")
    with pytest.raises(
        UserError, match=rf"c\.yaml has format {FORMAT + 1}, but this version of Suture reads up to {FORMAT}"
    ):
        load_config(file)


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


def test_every_setting_is_in_the_reference() -> None:
    """Of a stage by the end of its name, since stages share most settings; sections by their settings."""
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    mentioned = set(re.findall(r"`([a-z0-9_.-]+)`", text))
    ends = {".".join(name.split(".")[i:]) for name in mentioned for i in range(name.count(".") + 1)}
    sections = {name.rpartition(".")[0] for name in mentioned}
    places = list(_places(Config))
    for name, kind in methods().items():
        assert name in mentioned
        places += [place.partition(".")[2] or place for place in _places(kind.Settings)]
    known = mentioned | sections | ends
    assert not {place for place in places if place not in known and place.rpartition(".")[2] not in known}
    assert set(presets()) <= mentioned
    assert f"file format [{FORMAT}]" in text


def test_mistakes_are_told_in_the_words_of_yaml() -> None:
    root = {"root": "x"}
    assert refused(data=root | {"validation": "a"}) == "c.yaml: data.validation is 'a': expected a list."
    assert refused(data="x") == "c.yaml: data is 'x': expected a mapping of keys to values."
    assert refused(data={"root": None}) == "c.yaml: data.root is None: expected a path."
    assert "seed is 99999999999999999999: expected a number less than" in refused(data=root, seed=99999999999999999999)
