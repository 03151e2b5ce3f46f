"""The benchmarks of training give their rows first and say what took how long: a limit of time may end them early."""

import importlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from suture.data.datasets import load_dataset
from suture.data.labelling import Labelling
from suture.data.sampling.augment import (
    Augment,
    collate,
    draw_view,
    recolor,
    render_images,
    render_labels,
    render_nearest,
    resample,
)
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.methods.stage import Stage
from suture.methods.supervised import Supervised
from suture.models.model import Model
from suture.models.segmenter import build_segmenter
from suture.training.config import load_config

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
TINY = (
    "--frames 24 --videos 3 --native 64 48 --size 32 --encoder tu-test_resnet --workers 0 --warmup 1 --no-compile "
    "--batch 4 --steps 2"
)
FLOOR = ("query_seconds", "key_seconds", "query_flops", "key_flops", "flops_per_second")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a benchmark as if it were run from its folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == BENCHMARKS:
            del sys.modules[name]


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the benchmarks of the demo's steps keep their videos and frames."""
    return tmp_path_factory.mktemp("demo")


def run(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, options: str, folder: Path, data: bool = True
) -> dict[str, Any]:
    """Its figures, by its command line."""
    figures = folder / "figures.json"
    command = [module.__name__, *options.split(), "--json", str(figures)]
    command += ["--data", str(folder / "data")] if data else []
    monkeypatch.setattr(sys, "argv", command)
    module.main()
    return json.loads(figures.read_text(encoding="utf-8"))


def test_rows_come_before_all_else_with_their_times(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage, plot = load("contrast_stage"), load("plot")
    early: dict[str, Any] = {}
    floor = stage.floor

    def looked_at(bench: Any) -> Any:
        early.update(json.loads((tmp_path / "figures.json").read_text(encoding="utf-8")))
        return floor(bench)

    monkeypatch.setattr(stage, "floor", looked_at)
    options = f"{TINY} --modes paper shared --resident-steps 0 --paper-steps 3 --paper-seconds 0"
    facts = run(stage, monkeypatch, options, tmp_path)

    assert list(early["rows"]) == list(facts["rows"]) == ["paper", "shared"]
    assert list(early["seconds"]) == ["footage", "paper", "shared"]
    assert list(facts["seconds"]) == ["footage", "paper", "shared", "floor", "loader", "checkpoint"]
    for figures in (early, facts):  # a page can be made of what was there when time ran out
        assert "| shared " in plot.contrast_stage(figures)
    assert "loader alone" not in plot.contrast_stage(early)
    assert "loader alone" in plot.contrast_stage(facts)
    paper, shared = facts["rows"]["paper"]["loaded"], facts["rows"]["shared"]["loaded"]
    assert paper["steps"] == 1, "no step is begun after the patience is over"
    assert shared["steps"] == 2
    for name, row in (("paper", paper), ("shared", shared)):
        timed = row["steps"] * row["step_ms"] / 1000
        assert 0 < row["first_seconds"] <= row["start_seconds"] < facts["seconds"][name] - timed
        assert row["frames_per_second"] == pytest.approx(4 * row["steps"] / timed)
    said = capsys.readouterr().out
    assert said.index("paper …") < said.index("paper: ") < said.index("shared: ") < said.index("loader …")
    assert "s in all, of them" in said


def test_the_papers_way_is_plain(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = load("contrast_stage")
    seen: dict[str, Any] = {}
    loss = stage.PairwiseContrast.loss

    def looked_at(self: Any, batch: Any) -> Any:
        seen["layouts"] = {
            weight.is_contiguous()
            for branch in (self.online, self.momentum)
            for weight in branch.parameters()
            if weight.ndim == 4
        } | {batch.queries.images.is_contiguous(), batch.keys.images.is_contiguous()}
        seen["autocast"] = torch.is_autocast_enabled(self.context.device.type)
        seen["keys"] = len(batch.keys.images) / len(batch.queries.images)
        return loss(self, batch)

    monkeypatch.setattr(stage.PairwiseContrast, "loss", looked_at)
    monkeypatch.setattr(stage, "floor", lambda bench: dict.fromkeys(FLOOR, 1.0))
    run(stage, monkeypatch, f"{TINY} --modes paper --paper-steps 1", tmp_path)
    assert seen == {"layouts": {True}, "autocast": False, "keys": 6}


def test_a_small_card_is_given_the_stage_of_its_preset(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = load("contrast_stage")
    seen: list[tuple[int, float]] = []
    loss = stage.Contrast.loss

    def looked_at(self: Any, batch: Any) -> Any:
        seen.append((len(batch.queries.images), len(batch.keys.images) / len(batch.queries.images)))
        return loss(self, batch)

    monkeypatch.setattr(stage.Contrast, "loss", looked_at)
    monkeypatch.setattr(stage, "floor", lambda bench: dict.fromkeys(FLOOR, 1.0))
    row = run(stage, monkeypatch, f"{TINY} --modes 12gb --steps 1", tmp_path)["rows"]["12gb"]
    # A warm-up and a timed step of 16 queries, each in two parts, whatever batch the other modes have.
    assert seen == [(8, 2)] * 4
    assert row["accumulate"] == 2
    assert row["loaded"]["frames_per_second"] == pytest.approx(16_000 / row["loaded"]["step_ms"])


def test_the_papers_loss_is_ours(load: Any) -> None:
    loss = load("contrast_loss")
    case = loss.Case.random(grid=6, batch=2, key_frames=3, depth=8)
    with load("stages").full_float32():
        torch.testing.assert_close(case.step(loss.pairwise_contrast)(), case.step(loss.our_contrast)())


def test_kernels_are_told_apart(load: Any) -> None:
    kind = load("profile_step").kind
    assert kind("void at::native::batch_norm_collect_statistics_channels_last_kernel<float>") == "batch norm"
    assert kind("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc") == "convolution and matrix product"
    assert kind("void at::native::conv_depthwise2d_forward_kernel_generic<float, int>") == "resizing and blur"
    assert kind("void at::native::upsample_bilinear2d_backward_nhwc_out_frame<float>") == "resizing and blur"
    assert kind("void at::native::vectorized_elementwise_kernel<8, CUDAFunctor_add>") == "elementwise"


def test_a_step_of_any_stage_is_profiled(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, plot = load("profile_step"), load("plot")
    for name in ("seconds", "gpu_seconds"):
        monkeypatch.setattr(profile, name, lambda work, _: (work(), 1.0)[1])
    facts = run(profile, monkeypatch, f"{TINY} --stage pixpro --steps 1", tmp_path)
    assert facts["stage"] == "pixpro"
    assert facts["busy_ms"] == pytest.approx(sum(facts["kinds"].values()))
    shown = plot.profile_step(facts)
    assert shown.startswith("One eager step of 4 frames at 32×32")
    assert f"{facts['kinds']['batch norm'] / facts['busy_ms']:.1%}" in shown
    assert "of 4 queries" in plot.profile_step(facts | {"stage": "contrast"})


def test_a_command_names_the_rows_that_were_measured(load: Any) -> None:
    made_by = load("plot").made_by
    assert made_by("x.py --modes one two --steps 60", {"rows": {"one": 1}}) == "x.py --modes one --steps 60"
    assert made_by("x.py --steps 60", {"rows": [1, 2]}) == "x.py --steps 60"


def test_a_step_is_told_against_one_of_strong_and_stages_are_gone_on_with(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    supervised, plot = load("supervised"), load("plot")
    monkeypatch.setattr(supervised, "matrix_pace", lambda: 1e9)
    here = supervised.facts() | {"commit": "0123456"}
    for module in (supervised, load("common")):
        monkeypatch.setattr(module, "facts", lambda: here)
    options, measured, measure = f"{TINY} --small-batch 2 --stages strong", [], supervised.measure
    monkeypatch.setattr(supervised, "measure", lambda bench, name: measured.append(name) or measure(bench, name))
    run(supervised, monkeypatch, options, tmp_path)
    facts = run(supervised, monkeypatch, f"{options} pixpro dmt", tmp_path)
    assert measured == list(facts["rows"]) == ["strong", "pixpro", "dmt"]
    here["commit"] += "-dirty"
    assert not supervised.measured_before(tmp_path / "figures.json", facts["settings"])
    step = {name: row["loaded"]["step_ms"] for name, row in facts["rows"].items()}
    assert f"{step['dmt'] / step['strong']:.2f}x" in capsys.readouterr().out
    shown = plot.supervised(facts)
    assert f"{step['dmt'] / step['strong']:,.1f}×" in shown
    assert "bare model" not in shown, "a column that nothing is known for"
    frames = facts["flops_per_second"] / facts["rows"]["dmt"]["flops_per_frame"]
    assert plot.held_against(frames, facts["rows"]["dmt"]["loaded"]["frames_per_second"]) in shown


def test_supervised_training_is_held_against_the_plain_way_and_the_bare_model(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = run(load("supervised"), monkeypatch, f"{TINY} --stages supervised --plain-steps 1", tmp_path)
    row, shown = facts["rows"]["supervised"], load("plot").supervised(facts)
    assert row["plain"]["steps"] == 1
    assert all(name in shown for name in ("plain way", "bare model", "by FLOPs"))


def test_prediction_is_held_against_one_by_one_and_the_bare_network(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS.parent / "tests/prediction"))
    from predict_files import write_model

    inference, plot = load("inference"), load("plot")
    monkeypatch.setattr(inference, "matrix_pace", lambda: 1e9)
    options = f"--model {write_model(tmp_path / 'model')} --frames 6 --sizes 96x80"
    facts = run(inference, monkeypatch, options, tmp_path, data=False)
    (row,) = facts["rows"]
    shown = plot.inference(facts)
    assert plot.ratio(row["fps"]["all at once"], row["fps"]["one by one"]) in shown
    assert "bare network makes" in shown
    assert row["share"] == row["fps"]["all at once"] / min(row["fps"]["decoding alone"], row["fps"]["model alone"])


def test_one_frame_is_held_against_its_operations(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS.parent / "tests/prediction"))
    from predict_files import write_model

    latency, plot = load("latency"), load("plot")
    monkeypatch.setattr(latency, "matrix_pace", lambda: 1e9)
    options = f"--model {write_model(tmp_path / 'model')} --frames 3 --size 96x80 --device cpu"
    facts = run(latency, monkeypatch, options, tmp_path, data=False)
    (ours, *_), _ = facts["ms"].values()
    assert f"{facts['floor_ms'] / ours:.2f}×" in plot.latency(facts)
    del facts["floor_ms"]
    assert "by FLOPs" not in plot.latency(facts)


def test_an_exported_file_is_held_against_its_operations(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    export, plot = load("export"), load("plot")
    monkeypatch.setattr(export, "SECONDS", 0)
    segmenter = build_segmenter("deeplabv3plus", "tu-test_resnet", 2, 16).eval()
    row = export.compare(Model(segmenter, ("a", "b"), ((0, 0, 0),) * 2, (32, 32)), (40, 48), 1e12)
    assert 0 < row["onnx_median"] <= row["onnx"] < row["by_flops"]
    shown = plot.export({"rows": [{"network": "tiny", "frames": "48×40"} | row]})
    assert plot.held_against(row["by_flops"], row["onnx"]) in shown
    assert plot.beside(row["predictor"], row["onnx"]) in shown


def test_atrous_convolutions_are_held_against_the_operations_of_ours(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atrous, plot = load("atrous"), load("plot")
    for name, value in (("CHANNELS", (8, 4)), ("GRIDS", ((16, 1),)), ("DILATIONS", (12, 24))):
        monkeypatch.setattr(atrous, name, value)
    monkeypatch.setattr(atrous, "matrix_pace", lambda: 1e9)
    near, far = run(atrous, monkeypatch, "", tmp_path, data=False)["rows"]
    assert near["floor_ms"] == pytest.approx(9 * far["floor_ms"]), "taps that meet nothing are left out"
    assert f"({far['floor_ms'] / far['ms']['ours']:.1%})" in plot.atrous({"rows": [near, far]})


def test_folded_batch_norms_are_held_against_those_apart(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded, plot = load("folded"), load("plot")
    monkeypatch.setitem(load("latency").NETWORKS, "cpu", ("deeplabv3plus", "mobilenet_v2", 16, 64))
    monkeypatch.setattr(folded, "matrix_pace", lambda: 1e9)
    facts = run(folded, monkeypatch, "", tmp_path, data=False)
    (row,) = facts["rows"]
    assert list(row["ms"]) == ["apart", "folded"]
    assert row["floor_ms"] > 0
    assert f"({row['floor_ms'] / row['ms']['folded']:.1%})" in plot.folded(facts)


def test_ways_to_encode_differ_in_bytes_and_little_in_noise(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = run(load("film"), monkeypatch, "--frames 34 --size 96x80", tmp_path, data=False)
    usual, *_, ours, several = facts["rows"]
    assert all(abs(row["psnr"] - usual["psnr"]) < 5 for row in facts["rows"])
    assert several["bytes"] > ours["bytes"]  # a group begins with a frame that builds on no other
    assert f"{ours['psnr']:.1f}" in load("plot").film(facts)


def test_growth_is_shown_for_any_number_of_sizes(load: Any) -> None:
    plot = load("plot")

    def row(frames: int) -> dict[str, Any]:
        parts = {"import": 5.0, "list": frames / 1e5}
        row = {"frames": frames, "seconds": sum(parts.values()), "cpu_seconds": 4.0, "first_seconds": 9.0}
        return row | {"parts": parts, "private_bytes": 5e8, "batch_ms": 4.0}

    facts = {"machine": {"device": "a machine"}, "frames": [row(2000), row(20_000), row(200_000)]}
    shown = plot.growth_frames(facts)
    assert "100× the time for drawing all batches of an epoch" in shown
    assert "from 0.0 to 2.0 s" in shown


def test_a_start_is_timed_to_the_first_batch_of_the_contrast(load: Any, tmp_path: Path) -> None:
    growth = load("growth")
    growth.make_folder(tmp_path / "data", 40)

    first, again = (growth.begin_run(tmp_path / "data", time.time()) for _ in range(2))

    assert (tmp_path / "data/run/stages/1-pretrain/done.json").exists()
    for facts in (first, again):
        assert facts["frames"] == 40
        assert list(facts["parts"]) == ["import", "list", "network", "record", "store", "pseudo labels", "first batch"]
        assert facts["seconds"] == pytest.approx(sum(facts["parts"].values()))


def test_the_plain_version_on_the_cpu_has_the_default_layout(load: Any, demo_data: Path) -> None:
    cpu = load("cpu")
    demo = cpu.Demo(demo_data, frames=12)
    for way, plain in (("plain", True), ("channels last", False)):
        found = []
        for method in cpu.STAGES:
            job, stages = demo.job(method, cpu.LADDER.index(way), steps=1)
            weights = [weight for weight in job.segmenter.parameters() if weight.ndim == 4 and min(weight.shape) > 1]
            assert {weight.is_contiguous() for weight in weights} == {plain}
            found += stages
        assert found == list(cpu.STEPS)


def test_the_steps_on_the_cpu_are_those_that_the_demo_trains(load: Any) -> None:
    """By the methods that the Makefile names, and by the demo's preset."""
    makefile = (BENCHMARKS.parent / "Makefile").read_text(encoding="utf-8")
    trained = re.findall(r"suture train demo/data --preset demo(?: --set method=(\w+))? ", makefile)
    steps: Counter[str] = Counter()
    for method in trained:
        config = load_config(Path(), "demo", [f"method={method}"] if method else [])
        for stage in config.build_method().stages():
            if isinstance(stage, Stage):
                steps["supervised" if isinstance(stage, Supervised) else type(stage).__name__.lower()] += (
                    stage.settings.steps
                )
    assert steps == load("cpu").STEPS


def test_the_demos_steps_are_held_against_the_plain_version_and_the_floor(
    load: Any, demo_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, plot = load("cpu"), load("plot")
    monkeypatch.setattr(cpu, "matrix_pace", lambda: 1e9)
    measure, known = cpu.measure, {}

    def plain_for_all(*given: Any) -> dict[str, float]:  # the plain way has most in it that could break
        if not known:
            known.update(measure(*given))
        return known

    monkeypatch.setattr(cpu, "measure", plain_for_all)
    options = f"--frames 12 --rounds 1 --warmup 1 --steps 1 --busy --data {demo_data}"
    facts = run(cpu, monkeypatch, options, tmp_path, data=False)
    assert [row["way"] for row in facts["rows"]] == list(cpu.LADDER[: len(facts["rows"])])
    for row in (*facts["rows"], facts["floor"]):
        assert row["seconds"] == pytest.approx(sum(row[kind] * count for kind, count in cpu.STEPS.items()) / 1000)
    shown = plot.cpu(facts)
    assert "| by FLOPs " in shown
    assert "not measured yet" not in shown
    del facts["floor"], facts["steps"]["stitch"]
    for row in facts["rows"]:
        del row["stitch"]
    shown = plot.cpu(facts)
    assert "by FLOPs" not in shown
    assert "not measured yet" in shown


def test_taps_in_one_product_are_the_convolution(load: Any) -> None:
    benchmark = load("atrous")
    features, layer = torch.rand(2, 4, 9, 7), benchmark.OneProduct(4, 3, 3, padding=8, dilation=8, bias=False)
    expected = torch.nn.functional.conv2d(features, layer.weight, padding=8, dilation=8)
    torch.testing.assert_close(layer(features), expected, rtol=1e-4, atol=1e-5)


def test_the_plain_version_renders_the_same(load: Any) -> None:
    cpu, generator = load("cpu"), np.random.default_rng(0)
    images = [generator.integers(0, 256, (side, 20, 3), np.uint8) for side in (20, 30, 25)]
    labels = [generator.integers(0, 5, (40, side), np.uint8) for side in (20, 30, 25)]
    draws = [draw_view(np.random.default_rng(place), Augment()) for place in range(3)]
    patches = collate(draws, images, labels)
    torch.testing.assert_close(
        cpu.one_by_one(render_images)(patches, (24, 24)), render_images(patches, (24, 24)), atol=3e-5, rtol=0
    )
    assert torch.equal(cpu.one_by_one(render_labels)(patches, (24, 24), 8), render_labels(patches, (24, 24), 8))
    inside = render_nearest(patches.labels, patches.flip, (24, 24))
    assert torch.equal(cpu.one_by_one(render_nearest)(patches.labels, patches.flip, (24, 24)), inside)
    plain = resample(patches, (24, 24))
    torch.testing.assert_close(
        cpu.one_by_one(recolor)(plain, patches.color), recolor(plain, patches.color), atol=3e-5, rtol=0
    )


@pytest.mark.parametrize("strategy", ["random", "equidistant", "uncertainty", "appearance", "model"])
def test_a_round_of_labelling_adds_frames_that_have_a_mask(load: Any, demo_data: Path, strategy: str) -> None:
    selection = load("selection")
    root = demo_data / "rounds"
    if not root.exists():
        write_synthetic(root, SyntheticSettings(cases=3, frames=12, width=48, height=40), progress=False)
    dataset = load_dataset(root)
    known = Labelling({dataset.split("train")[0].id: (0, 3)})
    chosen = selection.next_frames(strategy, dataset, known, 4, None, {}, 0)
    assert chosen.count == 4
    assert not {*chosen} & {*known}
    assert {dataset[video].split for video, _ in chosen} == {"train"}


def test_the_labels_that_reach_a_score_lie_between_the_rounds(load: Any) -> None:
    selection = load("selection")
    assert selection.labels_for({10: 50.0, 20: 60.0}, 55.0) == 15
    assert selection.labels_for({10: 50.0, 20: 60.0}, 61.0) is None
    rows = [dict(zip(selection.COLUMNS, ("a", "equidistant", 0, 1, 5, "miou", 0.5), strict=True))]
    assert "equidistant" in selection.tables(rows)
