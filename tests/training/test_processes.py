"""Several processes compute what one does: real ones, started by torchrun, that meet through gloo."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from commands import started
from distributed_script import freeze
from rich.console import Console

from suture.core.errors import UserError
from suture.methods.pseudo_labels import PseudoLabels
from suture.models.encoder_weights import read_tensors
from suture.training import distributed as processes
from suture.training.config import ComputeSettings, Config
from suture.training.distributed import Processes
from suture.training.run_folder import read_curve
from suture.training.train import train

QUIET = Console(quiet=True)
MODES = ("paper", "shared", "bank")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.fixture(scope="module")
def both(
    pgvcl: Callable[..., Config], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Path], dict[str, Path], Path]:
    """The folders of the same runs in one process and in two, by the mode of their keys.

    The two processes crash once in each run and go on. All start from the same stage 1, in which batch norm has learnt
    its statistics; plain SGD, which unlike AdamW and LARS would show a gradient that is off by a factor.
    """
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    configs = {
        mode: pgvcl(
            "method.pretrain.steps=20",
            f"method.contrast.keys.mode={mode}",
            "method.contrast.batch=8",
            "method.contrast.accumulate=2",
            "method.contrast.steps=4",
            "method.contrast.class_balanced=true",
            "method.contrast.optimizer={kind: sgd, lr: 0.02, schedule: poly}",
            "method.finetune.steps=4",
            "compute.checkpoint_every=2",
            "method.finetune.keep=1",
            "method.finetune.optimizer={kind: sgd, lr: 0.002}",
            "evaluation.splits=[val, test]",
            "evaluation.completion=true",
        )
        for mode in MODES
    }
    begin(configs["paper"], one / "paper")
    for mode in MODES:
        for folder in (one, two):
            if (folder, mode) != (one, "paper"):
                shutil.copytree(one / "paper/stages/1-pretrain", folder / mode / "stages/1-pretrain")
    with pytest.MonkeyPatch.context() as patch:
        freeze(patch.setattr)
        for mode, config in configs.items():
            train(config, one / mode, QUIET)
    said = {mode: config.model_dump(mode="json") for mode, config in configs.items()}
    shutil.copytree(one / "paper", two / "scored")
    (two / "jobs.json").write_text(json.dumps({"train": said, "evaluate": "scored"}))
    script = Path(__file__).with_name("distributed_script.py")
    result = subprocess.run([*TORCHRUN, str(script), str(two)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    return {mode: one / mode for mode in MODES}, {mode: two / mode for mode in MODES}, two


def begin(config: Config, folder: Path) -> None:
    """Do the first stage only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PseudoLabels, "run", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(config, folder, QUIET)


def raise_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def losses(folder: Path, stage: str) -> np.ndarray:
    return np.array([row["loss"] for row in read_curve(folder / "stages" / stage / "metrics.csv")])


@pytest.mark.parametrize("stage", ["3-contrast", "4-finetune"])
@pytest.mark.parametrize("mode", MODES)
def test_two_processes_see_the_losses_of_one(both: Any, mode: str, stage: str) -> None:
    one, two, _ = both
    expected = losses(one[mode], stage)
    assert len(expected) == 4
    np.testing.assert_allclose(losses(two[mode], stage), expected, rtol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_end_with_the_weights_of_one(both: Any, mode: str) -> None:
    one, two, _ = both
    first = read_tensors(one[mode] / "stages/1-pretrain/weights.safetensors")
    expected, found = (read_tensors(folder[mode] / "model.safetensors") for folder in (one, two))
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name], tensor, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    moved = max(float((expected[name] - first[name]).abs().max()) for name in expected if name.endswith("weight"))
    assert moved > 1e-3


@pytest.mark.parametrize("mode", MODES)
def test_pseudo_labels_of_two_processes_are_those_of_one(both: Any, mode: str) -> None:
    """From the same weights, so that they are equal and not only alike; each process has some of the videos."""
    one, two, _ = both
    files = sorted(path.name for path in (one[mode] / "pseudo").iterdir())
    assert len(files) == 6
    assert files == sorted(path.name for path in (two[mode] / "pseudo").iterdir())
    for name in files:
        assert np.array_equal(np.load(one[mode] / "pseudo" / name), np.load(two[mode] / "pseudo" / name))


def test_two_processes_score_like_one(both: Any) -> None:
    one, _, folder = both
    expected = json.loads((one["paper"] / "metrics.json").read_text())
    assert json.loads((folder / "scored/metrics.json").read_text()) == expected
    for rank in range(2):
        seen = json.loads((folder / f"rank-{rank}.json").read_text())
        assert (seen["rank"], seen["world"]) == (rank, 2)
        assert seen["scores"] == expected, "every process knows all scores"


def test_all_processes_end_where_the_first_one_refuses(both: Any) -> None:
    _, _, folder = both
    refusals = [json.loads((folder / f"rank-{rank}.json").read_text())["refused"] for rank in range(2)]
    assert "was started with another config (seed: 0 → 7)" in refusals[0]
    assert refusals[1] == "exit 2"


@contextmanager
def two_processes(config: Path, folder: Path, said: Path) -> Iterator[list[Any]]:
    """Two processes of one training, as srun starts them, after their third step."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost", "SLURM_NODEID": "0"}
    step |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    words = ["suture", "train", config, "-o", folder]
    with ExitStack() as stack:
        both = []
        for rank in range(2):
            own = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
            both.append(stack.enter_context(started(*words, said=said / f"said-{rank}", **step, **own)))
        while len(read_curve(folder / "stages/1-train/metrics.csv")) < 3:
            assert both[0].is_alive(), (said / "said-0").read_text()
            time.sleep(0.02)
        yield both


def test_a_signal_to_one_process_ends_all_after_the_same_step(
    supervised: Callable[..., Config], tmp_path: Path
) -> None:
    config = supervised("method.train.steps=60", "compute.checkpoint_every=60", "compute.log_every=1")
    file, folder = tmp_path / "config.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    with two_processes(file, folder, tmp_path) as both:
        both[1].terminate()
        for process in both:
            process.join(60)
        assert [process.exitcode for process in both] == [143, 143]
    kept = torch.load(folder / "stages/1-train/last.ckpt", weights_only=True)["global_step"]
    assert 2 <= kept < 60
    text = (tmp_path / "said-0").read_text()
    assert text.count(f"stage 1 of 1: train was interrupted; {kept} steps are saved") == 1
    assert text.count("Stopped; to go on: start all processes again, by the same command") == 1


@pytest.mark.parametrize("lost", [0, 1])
def test_a_killed_process_ends_the_others_with_one_sentence(
    supervised: Callable[..., Config], tmp_path: Path, lost: int
) -> None:
    """As srun starts them: torchrun would end the others itself."""
    config = supervised("method.train.steps=30", "compute.checkpoint_every=2", "compute.log_every=1")
    file, folder = tmp_path / "config.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    with two_processes(file, folder, tmp_path) as both:
        both[lost].kill()
        both[1 - lost].join(60)
        assert both[1 - lost].exitcode == 2
    text = (tmp_path / f"said-{1 - lost}").read_text()
    assert text.count("error: Another process of this run has ended, or cannot be reached any more: ") == 1
    assert "Traceback" not in text
    assert "Warning" not in text
    train(config, folder, QUIET)  # nobody holds the lock, and the checkpoint is whole
    assert [row["step"] for row in read_curve(folder / "stages/1-train/metrics.csv")] == list(range(1, 31))


def test_alone_where_nobody_started_several() -> None:
    alone = Processes.start(ComputeSettings(accelerator="cpu"))
    assert (alone.rank, alone.world, alone.local_rank, alone.local_world) == (0, 1, 0, 1)
    assert alone.first
    assert alone.gather("x") == ["x"]
    assert alone.first_then_all(lambda: 3) == 3
    with pytest.raises(KeyError):
        alone.share(lambda: {}["x"])


def test_srun_says_the_same_as_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "SLURM_JOB_ID": "1234567",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "gpu[03-04]",
        "SLURM_PROCID": "6",
        "SLURM_LOCALID": "2",
        "SLURM_NODEID": "1",
    }
    with monkeypatch.context() as patch:
        for name in (
            "RANK",
            "WORLD_SIZE",
            "LOCAL_RANK",
            "LOCAL_WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
            "GROUP_RANK",
        ):
            patch.setenv(name, "")  # so that they are put back
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        processes._take_over_slurm()
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("6", "8")
        assert (os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], os.environ["GROUP_RANK"]) == ("2", "4", "1")
        assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("gpu03", "19567")
        patch.delenv("RANK")
        patch.setenv("SLURM_STEP_NUM_TASKS", "7")
        with pytest.raises(UserError, match="srun started 7 processes on 2 nodes"):
            processes._take_over_slurm()


def test_sbatch_without_srun_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_NAME", "training")
    assert Processes.start(ComputeSettings(accelerator="cpu")).world == 1


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"compute\.accelerator is gpu, but torch sees no GPU"):
        Processes.start(ComputeSettings(accelerator="gpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="sees 2 GPUs: start one process per GPU"):
        processes._device(ComputeSettings(), 2)
