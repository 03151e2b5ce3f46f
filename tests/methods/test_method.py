"""Every method of the table: it can be imported, it overfits a few frames, and it rejects impossible settings."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from stage_tester import EASY, QUICK, Build, train_accuracy

import suture.methods
from suture.core.errors import UserError
from suture.methods import METHODS
from suture.methods.dmt import DMT
from suture.methods.method import Method, find_method, methods
from suture.methods.pgvcl import ContrastSettings
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.methods.stage import START, TrainingSettings
from suture.methods.supervised import OhemSettings

SUPERVISED = {"batch": 4, "optimizer": QUICK, "augment": EASY}
SEMI = SUPERVISED | {"steps": 45, "unlabelled_batch": 2}
STEPS_20 = SUPERVISED | {"steps": 20}
ONE_STAGE = {"train": SUPERVISED | {"steps": 45}}
OVERFIT: dict[str, dict[str, Any]] = {
    "twice": {"pretrain": SUPERVISED | {"steps": 25}, "finetune": STEPS_20},
    "pgvcl": {
        "pretrain": STEPS_20,
        "contrast": {"steps": 10, "epochs": None, "hidden": 16, "channels": 8, "optimizer": {"lr": 1e-3}},
        "finetune": STEPS_20,
    },
    "pixpro": {
        "pretrain": STEPS_20,
        "propagation": {"steps": 10, "epochs": None, "hidden": 16, "channels": 8, "optimizer": {"lr": 1e-3}},
        "finetune": STEPS_20,
    },
    "selftraining": {"pretrain": SUPERVISED | {"steps": 60}, "train": STEPS_20},
    "dmt": {"pretrain": SUPERVISED | {"steps": 30}, "round": STEPS_20, "rates": [0.5, 1.0]},
    "uamt": {"train": SEMI | {"passes": 2, "consistency": 1}},
    "unimatch": {"train": SEMI | {"confidence": 0.8, "ema": 0.8}},
    "strong": {"train": SUPERVISED | {"steps": 45, "ema": 0.8}},
    "stitch": {"train": SEMI | {"confidence": 0.8, "ema": 0.8}},
}
ARCHITECTURE = {"uamt": "deeplabv3plus", "pgvcl": "deeplabv3plus", "pixpro": "deeplabv3plus", "dmt": "deeplabv3plus"}


@pytest.mark.parametrize("name", [name for name in METHODS if name != "propagate"])  # it trains nothing
def test_overfits_a_few_frames(name: str, tiny_context: Build, fit: Any) -> None:
    architecture = ARCHITECTURE.get(name, "linknet")
    context = tiny_context({"a": 4, "b": 4}, every=2, stored=(32, 32), architecture=architecture)
    before = train_accuracy(context.segmenter, context)
    weights = {START: deepcopy(context.segmenter.state_dict())}
    for stage in find_method(name)(find_method(name).Settings(**OVERFIT.get(name, ONE_STAGE))).stages():
        if stage.start_from:
            context.segmenter.load_state_dict(weights[stage.start_from])
        if isinstance(stage, PseudoLabels):
            stage.run(context)
            stage.load(context)
        else:
            fit(stage, context)
            context.segmenter = stage.outcome()
            weights[stage.name] = deepcopy(context.segmenter.state_dict())
    assert before < 0.8
    assert train_accuracy(context.segmenter, context) > 0.85


def test_every_method_file_is_in_the_table() -> None:
    files = Path(suture.methods.__file__).parent.glob("*.py")
    named = {file.stem for file in files if re.search(r"^class \w+\(Method\):", file.read_text(encoding="utf-8"), re.M)}
    assert named == set(METHODS)
    assert all(issubclass(kind, Method) for kind in methods().values())
    with pytest.raises(UserError, match="did you mean pixpro"):
        find_method("pixpr")


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (TrainingSettings, {"steps": None}),
        (TrainingSettings, {"steps": 5, "epochs": 5}),
        (TrainingSettings, {"batch": 6, "accumulate": 4}),
        (TrainingSettings, {"batch": 0}),
        (TrainingSettings, {"ema": 1.0}),
        (TrainingSettings, {"optimizer": {"lr": 0}}),
        (TrainingSettings, {"optimizer": {"kind": "sgd", "lr": None}}),
        (TrainingSettings, {"optimizer": {"trust": 0}}),
        (TrainingSettings, {"optimizer": {"power": 0}}),
        (TrainingSettings, {"optimiser": {}}),
        (OhemSettings, {"threshold": 1.0}),
        (OhemSettings, {"keep": 0.0}),
        (PseudoSettings, {"scales": ()}),
        (PseudoSettings, {"scales": (0.0,)}),
        (PseudoSettings, {"batch": 0}),
        (ContrastSettings, {"best_every": 10}),
        (ContrastSettings, {"temperature": 0}),
        (ContrastSettings, {"momentum": 1.1}),
        (DMT.Settings, {"rates": []}),
        (DMT.Settings, {"rates": [0.0]}),
        (DMT.Settings, {"rates": [1.2]}),
        (DMT.Settings, {"round": {"labelled": 8}}),
    ],
)
def test_impossible_settings_are_rejected(settings: type[BaseModel], wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**wrong)
