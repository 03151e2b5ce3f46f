"""What each setting does in a comparison that changes several at a time: `python docs/results/effects.py FOLDER...`.

The runs of one method are read from a comparison's folder. Each setting that has two values in them is a factor, and
the scores are fitted by least squares as a sum of one effect per factor. Settings that change together, such as the
crops of weak and strong views, are one factor; the validation videos are one too. Where there are three folds or more,
as in leave-one-sequence-out, each has a level of its own, which is fitted and not printed. Any other setting with three
values or more is refused, as what it does would pass for chance; three seeds or more are chance.

Of several folders, each has its table, and the settings that two or more of them change have another: the means of
their effects, weighted by the inverse of the squares of the standard errors.

A class that no training video of a run shows has no part in its mIoU, nor one that the scored videos do not show. Per
frame, on new videos, the former has none only in runs whose `metrics.json` says `left_out`; in runs that were scored
before, it counts as 0.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from suture.comparison.plan import flattened
from suture.training.config import without_folders

SCORES = ("new videos, mIoU", "new videos, per frame", "completion, mIoU", "completion, per frame")
SUM = "per frame on new videos + mIoU in completion"
"""By which settings are chosen."""


def flat(config: dict[str, Any]) -> dict[str, str]:
    """A nested config as dotted keys with their values as text."""
    return {key: json.dumps(value) for key, value in flattened(config).items()}


def scores(metrics: dict[str, Any]) -> list[float]:
    """Both scores on new videos, then both in completion, in percent."""
    # A class is learnt where completion has it: its videos are those of the training.
    learnt = {name for name, row in metrics["completion"]["classes"].items() if row["frames"]}
    found = []
    for part in ("val", "completion"):
        classes = metrics[part]["classes"].items()
        found.append(float(np.mean([row["iou"] for name, row in classes if name in learnt and row["frames"]])))
        found.append(metrics[part]["overall"]["miou_frames"])
    return [100 * score for score in found]


def factors(configs: list[dict[str, str]]) -> dict[str, list[bool]]:
    """Each factor, with its two values, and which runs have the second."""
    found: dict[str, list[bool]] = {}
    for key in configs[0]:
        values = sorted({config[key] for config in configs})
        if len(values) != 2:
            continue
        column = [config[key] == values[1] for config in configs]
        if not any(column == other or column == [not high for high in other] for other in found.values()):
            found[f"{key.removeprefix('method.train.')}: {values[0]} → {values[1]}"] = column
    return found


def folds(configs: list[dict[str, str]]) -> list[list[bool]]:
    """Of three folds or more, which runs are of each but the first; two are a factor."""
    held = [config["data.validation"] for config in configs]
    values = sorted(set(held))
    return [[one == value for one in held] for value in values[1:]] if len(values) > 2 else []


class Effect(NamedTuple):
    """How far a setting's two values are apart in every score and the sum, with standard errors, in percent points."""

    mean: np.ndarray
    error: np.ndarray


class Refused(Exception):
    """With a sentence on what cannot be fitted."""


def read(folder: Path, method: str) -> tuple[list[dict[str, str]], np.ndarray]:
    """The configs of a method's runs, and their scores with the sum."""
    configs, rows = [], []
    for run in sorted((folder / "runs").iterdir()):
        config = yaml.safe_load((run / "config.yaml").read_text())
        if config["method"]["name"] == method:
            metrics = json.loads((run / "metrics.json").read_text())
            if not {"val", "completion"} <= metrics.keys():
                raise Refused(f"{run} is scored on {', '.join(metrics)}, expected val and completion")
            configs.append(flat(without_folders(config)))  # collected runs lie beside others in one that went on
            row = scores(metrics)
            rows.append([*row, row[1] + row[2]])
    if not configs:
        raise Refused(f"{folder} has no run of {method}: name another method with --method")
    for key in configs[0]:
        values = {config[key] for config in configs}
        if len(values) > 2 and key not in ("data.validation", "seed"):
            raise Refused(f"{key} has the values {', '.join(sorted(values))}, expected two at most")
    return configs, np.array(rows)


def fitted(configs: list[dict[str, str]], measured: np.ndarray) -> tuple[dict[str, Effect], int]:
    """The effect of each factor, and on how many degrees of freedom its standard error rests."""
    columns = factors(configs)
    table = zip(*columns.values(), *folds(configs), strict=True)
    design = np.array([[1.0, *(0.5 if high else -0.5 for high in row)] for row in table])
    effects, *_ = np.linalg.lstsq(design, measured, rcond=None)
    free = len(design) - design.shape[1]
    if free < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        raise Refused(f"{len(design)} runs are too few for {design.shape[1] - 1} factors")
    variance = ((measured - design @ effects) ** 2).sum(0) / free
    errors = np.sqrt(np.outer(np.diag(np.linalg.inv(design.T @ design)), variance))
    # After the first, which is the mean of all runs, stand the factors; the folds' levels are the last.
    return dict(zip(columns, map(Effect, effects[1:], errors[1:]), strict=False)), free


def pooled(found: list[Effect]) -> Effect:
    """The mean of effects, weighted by the inverse of the squares of their standard errors.

    >>> one, other = (Effect(np.array([mean]), np.array([error])) for mean, error in ((1.0, 1.0), (6.0, 2.0)))
    >>> [round(float(value[0]), 3) for value in pooled([one, other])]
    [2.0, 0.894]
    """
    weights = np.array([effect.error**-2.0 for effect in found])
    means = np.array([effect.mean for effect in found])
    return Effect((weights * means).sum(0) / weights.sum(0), weights.sum(0) ** -0.5)


def tabulated(effects: dict[str, Effect]) -> str:
    heads = (*SCORES, SUM)
    lines = ["| setting | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name, effect in effects.items():
        cells = (f"{e:+.1f} ± {s:.1f}".replace("-", "−") for e, s in zip(*effect, strict=True))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    options.add_argument("--method", default="stitch")
    said = options.parse_args()
    several = len(said.folders) > 1
    by_setting = defaultdict(list)
    for folder in said.folders:
        try:
            configs, measured = read(folder, said.method)
            effects, free = fitted(configs, measured)
        except Refused as error:
            options.error(str(error))
        told = "difference of the two values, with its standard error"
        few = ": too few to say anything" * (free < 4)
        print(f"{f'{folder}: ' * several}{len(configs)} runs of {said.method}; {told} ({free} free{few})\n")
        print(tabulated(effects) + "\n" * several)
        for name, effect in effects.items():
            by_setting[name].append(effect)
    if several:
        print("The settings of two folders or more: the mean, weighted by the inverse squares of the standard errors\n")
        print(tabulated({name: pooled(found) for name, found in by_setting.items() if len(found) > 1}))


if __name__ == "__main__":
    main()
