"""How far one method is above another, pair by pair: `python docs/results/pairs.py FOLDER METHOD OTHER`.

A pair is two runs of one dataset, labelling and seed; a method that has all labels meets every labelling. For every
score (of the sets, their classes and their videos) it prints the mean difference in percent points with its 95 %
interval (Student's t over the pairs, taken as independent; of these runs on these videos, not of other videos), how
many pairs are ahead, and the pairs: of each dataset and labelling (`all` is every label there is), of all labellings of
a dataset together, and of the means over the labellings of each seed, whose pairs are not independent.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from suture.comparison.plan import Place
from suture.comparison.results import Result, Results, read_results, t_interval
from suture.core.errors import UserError
from suture.evaluation.titles import SETS, TITLES

OVERALL = ("miou", "miou_frames", "nsd")


def scores(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Every score of a run with its name, in percent."""
    for which, found in metrics.items():
        rows = [(TITLES[key], found["overall"].get(key)) for key in OVERALL]
        classes = {name: row["iou"] for name, row in found["classes"].items() if row["iou"] is not None}
        rows += [(f"IoU of {name}", value) for name, value in classes.items()]
        if len(classes) > 1:  # what one class decides, and what the others say
            rest = {name: np.mean([classes[other] for other in classes if other != name]) for name in classes}
            rows += [(f"mIoU without {name}", float(value)) for name, value in rest.items()]
        # Per frame too: over a whole video, a class that it lacks counts as 0 in runs that predict a pixel of it.
        for key in ("miou", "miou_frames"):
            rows += [(f"{TITLES[key]} of {name}", row[key]) for name, row in found["videos"].items()]
        for name, value in rows:
            if value is not None:
                yield f"{SETS[which].title}, {name}", 100 * value


def told(apart: list[float]) -> str:
    """A mean with its interval, how many are ahead, and all of them."""
    interval = "[{:+6.1f}, {:+6.1f}]".format(*t_interval(apart)) if len(apart) > 1 else " " * 16
    each = " ".join(f"{one:+.1f}" for one in apart)
    return f"{np.mean(apart):+6.1f} {interval}  {sum(one > 0 for one in apart)} of {len(apart)}  ({each})"


def compared(found: Results, method: str, other: str) -> str:
    """What is printed; nothing where the two have no pair."""
    several = len(found.boards) > 1
    return "\n".join(
        f"{board.dataset}: {text}" if several else text
        for board in found.boards
        for text in _differences(board.runs, method, other)
    )


def partner(place: Place, other: str, scored: Mapping[Place, Mapping[str, float]]) -> Mapping[str, float]:
    """The scores that a run is held against: the other method's with its seed and labelling, or with all labels."""
    same = place._replace(method=other)
    return scored.get(same) or scored.get(same._replace(labelling="all"), {})


def _differences(runs: Sequence[Result], method: str, other: str) -> Iterator[str]:
    """Of each score of one dataset's runs."""
    scored = {run.place: dict(scores(run.metrics)) for run in runs if run.place.method in (method, other)}
    apart: dict[str, dict[Place, float]] = defaultdict(dict)
    for place, ours in scored.items():
        if place.method == method:
            theirs = partner(place, other, scored)
            for name in ours.keys() & theirs.keys():
                apart[name][place] = ours[name] - theirs[name]
    for name, found in sorted(apart.items()):
        by_labelling: dict[str, list[float]] = defaultdict(list)
        by_seed: dict[int, list[float]] = defaultdict(list)
        for place, one in found.items():
            by_labelling[place.labelling].append(one)
            by_seed[place.seed].append(one)
        means = [float(np.mean(values)) for values in by_seed.values()]
        rows = [*by_labelling.items(), ("together", list(found.values())), ("seeds", means)]
        lines = [f"{method} − {other}: {name}", *(f"  {where:10s} {told(values)}" for where, values in rows)]
        yield "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("method")
    options.add_argument("other")
    said = options.parse_args()
    try:
        text = compared(read_results(said.folder), said.method, said.other)
    except UserError as error:
        options.error(str(error))
    if not text:
        options.error(f"{said.folder} has no dataset, labelling and seed of both {said.method} and {said.other}")
    Console().out(text, highlight=False)  # as the commands do, it ends quietly where `head` has read enough


if __name__ == "__main__":
    main()
