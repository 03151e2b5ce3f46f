"""Rounds of labelling, simulated: which way to choose frames reaches a score with the fewest labels?

    python benchmarks/selection.py research/results/selection.yaml runs/selection --csv selection.csv

The first file is a comparison file with one method. Each of its runs (dataset, seed) is trained in rounds, once for
each strategy. A round adds equally many labels, chosen among the frames with a mask; the model that chooses has seen
only the labels of the rounds before. Started again, it goes on. `--jobs` trains several strategies side by side.
"""

import argparse
import csv
import io
import multiprocessing
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

from common import table
from rich.console import Console

from suture.annotate.choose_frames import Place, choose_frames, measure_appearance, measure_by_model, shots_of_places
from suture.comparison.plan import PlannedRun, read_plan
from suture.core.io import write_text
from suture.data.dataset import Dataset
from suture.data.labelling import Labelling, LabellingSettings, all_masks, by_budget, from_list
from suture.data.shots import find_shots
from suture.prediction.predictor import Predictor
from suture.training.run_folder import Run
from suture.training.train import open_data, train

STRATEGIES = ("random", "equidistant", "uncertainty", "appearance", "model")
"""`appearance` and `model` are those of `suture select --by`. `uncertainty` begins as `equidistant`, `model` as
`appearance`."""
COLUMNS = ("dataset", "strategy", "seed", "round", "labels", "metric", "score")


def labelling_of(frames: Iterable[Place]) -> Labelling:
    places: dict[str, list[int]] = {}
    for video, index in frames:
        places.setdefault(video, []).append(index)
    return Labelling(places)


def next_frames(
    strategy: str,
    dataset: Dataset,
    known: Labelling,
    budget: int,
    before: Path | None,
    shot_of: Mapping[Place, Place],
    seed: int,
) -> Labelling:
    """Choose the frames that a round adds.

    Args:
        strategy: One of `STRATEGIES`.
        dataset: The data.
        known: Frames labelled before.
        budget: Number of frames.
        before: Run of the round before.
        shot_of: Shot of each frame.
        seed: Seed of random frames.
    """
    pool = all_masks(dataset)
    free = sorted(set(pool) - set(known))
    if strategy == "random":
        return labelling_of(random.Random(f"{seed} {known.count}").sample(free, min(budget, len(free))))
    if strategy == "equidistant" or (strategy == "uncertainty" and before is None):
        return by_budget({video: [indices] for video, indices in pool.frames.items()}, budget, known)
    if strategy == "appearance" or before is None:
        facts = measure_appearance(dataset, pool)
    else:
        facts = measure_by_model(Predictor(before), dataset, pool)
    if strategy == "uncertainty":
        uncertainty = dict(zip(facts.places, facts.uncertainty.tolist(), strict=True))
        return labelling_of(sorted(free, key=uncertainty.__getitem__, reverse=True)[:budget])
    return labelling_of(choose_frames(facts, known, shot_of, budget))


def train_rounds(planned: PlannedRun, strategy: str, out: Path, rounds: int, share: float) -> list[dict[str, Any]]:
    """Train one strategy round after round, and return its rows."""
    dataset = open_data(planned.config).dataset
    budget = max(1, round(share * all_masks(dataset).count))
    shots = {video.id: find_shots(video, planned.config.data.shots) for video in dataset.split("train")}
    members = {video: [one.members(shot) for shot in range(len(one))] for video, one in shots.items()}
    shot_of, known, rows = dict(shots_of_places(members)), Labelling({}), []
    before: Path | None = None
    for number in range(1, rounds + 1):
        name = f"{planned.key.dataset}__{strategy}__seed-{planned.key.seed}__round-{number}"
        listed = out / "lists" / f"{name}.txt"
        if not listed.exists():
            chosen = next_frames(strategy, dataset, known, budget, before, shot_of, planned.key.seed)
            write_text(listed, labelling_of([*known, *chosen]).to_text())
        known = from_list(listed, dataset)
        data = planned.config.data.model_copy(update={"labelling": LabellingSettings(list=listed)})
        before = out / "runs" / name
        if not Run(before).is_finished:
            train(planned.config.model_copy(update={"data": data}), before, Console(file=io.StringIO()))
        primary = Run(before).metrics["test"]["primary"]
        values = (
            planned.key.dataset,
            strategy,
            planned.key.seed,
            number,
            known.count,
            primary["score"],
            primary["value"],
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        print(*values, flush=True)
    return rows


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """Mean score of each strategy by labels, for each dataset, and the labels that reach equidistant's last score."""
    parts = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        scores: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            if row["dataset"] == dataset:
                scores[row["strategy"]][int(row["labels"])].append(float(row["score"]))
        curves = {name: {labels: mean(values) for labels, values in curve.items()} for name, curve in scores.items()}
        goal = max(curves.get("equidistant", {0: float("inf")}).values())
        counts = sorted({labels for curve in curves.values() for labels in curve})
        lines = [
            [name, *(curve.get(labels) for labels in counts), labels_for(curve, goal)] for name, curve in curves.items()
        ]
        parts.append(table(lines, [dataset, *(f"{labels} labels" for labels in counts), "equidistant's best with"]))
    return "\n\n".join(parts)


def labels_for(curve: Mapping[int, float], goal: float) -> float | None:
    """Labels that reach a score, between the measured points; None if it is not reached.

    >>> labels_for({10: 50.0, 20: 60.0}, 55.0)
    15.0
    """
    points = sorted(curve.items())
    for (fewer, low), (more, high) in zip([points[0], *points], points, strict=False):
        if high >= goal:
            return more if high <= low else max(fewer, more - (more - fewer) * (high - goal) / (high - low))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, help="comparison file")
    parser.add_argument("out", type=Path, help="folder for lists and runs")
    parser.add_argument("--csv", type=Path, help="write the rows here too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--share", type=float, default=0.02, help="labels of a round, as a share of the frames with a mask"
    )
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chains = [(run, strategy) for run in read_plan(options.plan).runs for strategy in options.strategies]
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        started = [pool.submit(train_rounds, *chain, options.out, options.rounds, options.share) for chain in chains]
        rows = [row for one in started for row in one.result()]
    if options.csv:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(options.csv, text.getvalue())
    print(tables(rows))


if __name__ == "__main__":
    main()
