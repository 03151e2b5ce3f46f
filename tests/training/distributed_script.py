"""What several processes do together in `test_processes.py`; started by torchrun with a folder as its argument.

The folder holds `jobs.json`: configs to train, runs to evaluate. What each process saw goes to `rank-N.json`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from torch.nn import functional

from suture.core.errors import UserError
from suture.methods.stage import Stage
from suture.models.segmenter import set_dropout
from suture.training.callbacks import StageProgress
from suture.training.config import parse_config
from suture.training.distributed import Processes
from suture.training.train import Run, evaluate_run, train


def freeze(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let batch norm keep its statistics and dropout rest: both would be those of a process's own part of the batch."""
    batch_norm, begin = functional.batch_norm, Stage.begin

    def frozen(x: Any, mean: Any, variance: Any, weight: Any, bias: Any, training: bool, *rest: float) -> Any:
        return batch_norm(x, mean, variance, weight, bias, False, *rest)

    def begin_without_dropout(stage: Stage, job: Any) -> None:
        begin(stage, job)
        set_dropout(stage, active=False)

    patch(functional, "batch_norm", frozen)
    patch(Stage, "begin", begin_without_dropout)


class Crash(Exception):
    """What ends a run in its third contrast step, once."""


def crash_once() -> None:
    """Let every process crash at the same place, after a checkpoint."""
    original = StageProgress.on_step_end

    def crash(self: StageProgress, loop: Any) -> None:
        if loop.stage.name == "contrast" and loop.step == 3:
            StageProgress.on_step_end = original  # type: ignore[method-assign]
            raise Crash
        original(self, loop)

    StageProgress.on_step_end = crash  # type: ignore[method-assign]


def main(folder: Path) -> None:
    freeze()
    jobs = json.loads((folder / "jobs.json").read_text())
    quiet = Console(quiet=True)
    for name, said in jobs["train"].items():
        config = parse_config(said, name)
        crash_once()
        try:
            train(config, folder / name, quiet)
        except Crash:
            train(config, folder / name, quiet)
    scores = evaluate_run(folder / jobs["evaluate"], console=quiet)
    processes = Processes.start(Run(folder / jobs["evaluate"]).config.compute)
    refused = ""
    try:  # to change the seed of a run: the first process says so, the others end with it
        train(parse_config(said | {"seed": 7}, name), folder / name, quiet)
    except UserError as error:
        refused = str(error)
    except SystemExit as error:
        refused = f"exit {error.code}"
    seen = {"rank": processes.rank, "world": processes.world, "refused": refused, "scores": scores}
    (folder / f"rank-{processes.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
