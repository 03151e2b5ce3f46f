"""How good the targets of stitch are, given one trained model as the teacher: `python docs/results/targets.py RUN`.

Nothing is trained, so training's noise has no part in it. For every way to make targets of the unlabelled training
frames: which share of their pixels is sure enough to be learnt (coverage), and which share of these is wrong. It needs
the masks of unlabelled frames, as benchmarks have them.
"""

import argparse
from pathlib import Path

import torch
from rich.console import Console

from suture.data.augment import UNCHANGED, ViewDraw, collate, render_labels
from suture.data.classes import IGNORE
from suture.methods.stage import Part
from suture.methods.stitch import Stitch, StitchSettings
from suture.models.weights import Model
from suture.runs.fit import make_job
from suture.runs.folder import Run
from suture.runs.processes import Processes
from suture.runs.run import open_data
from suture.runs.session import Session

LIMITS = (0.8, 0.95, 0.98)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path)
    options.add_argument("--steps", type=int, default=14, help="of eight frames each")
    said = options.parse_args()
    run = Run(said.run)
    opened = open_data(run.config)
    session = Session(run, run.config, opened, Processes.start(run.config.compute), Console(quiet=True))
    teacher = Model.load(run.folder).segmenter
    print("| teacher sees | `propagate` | " + " | ".join(f"covered, wrong at {limit}" for limit in LIMITS) + " |")
    print("| --- | ---: |" + " ---: |" * len(LIMITS))
    for whole in (False, True):
        for propagate in (0.0, 0.5, 0.8):
            settings = StitchSettings(whole=whole, propagate=propagate, confidence=0, contrast=0)
            counts = targets(Stitch("train", settings), session, teacher, said.steps)
            cells = (f"{sure / known:.1%}, {wrong / max(sure, 1):.2%}" for known, sure, wrong in counts)
            print(f"| {'the frame' if whole else 'the cut'} | {propagate} | " + " | ".join(cells) + " |", flush=True)


@torch.no_grad()
def targets(stage: Stitch, session: Session, teacher: torch.nn.Module, steps: int) -> list[list[int]]:
    """For every limit: the pixels whose class is known, those of which the teacher is sure, and its mistakes."""
    job = make_job(session, [stage], teacher)
    job.workers = 0
    stage.begin(job)
    stage.to(job.device)
    dataset, size = session.opened.dataset, stage.settings.batch
    counts = [[0, 0, 0] for _ in LIMITS]
    for step in range(steps):
        part = Part(step, range(size), range(size))
        drawn = stage.draw(part)
        taught = stage.teach(stage.render(stage.transfer_batch_to_device(drawn, job.device, 0)))
        places = [job.frames.places[number] for number in drawn.numbers.tolist()]
        masks = [video.view.crop(dataset.read_mask(video, index)) for video, index in places]
        boxes = zip(drawn.places.numpy(), drawn.views.flip.tolist(), strict=True)
        draws = [ViewDraw(box, flip, UNCHANGED) for box, flip in boxes]
        truth = render_labels(collate(draws, masks, masks), job.size).to(job.device)
        known = (truth != IGNORE) & (taught.target != IGNORE)
        for count, limit in zip(counts, LIMITS, strict=True):
            sure = known & (taught.weight >= limit)
            found = known, sure, sure & (taught.target != truth)
            count[:] = [before + int(more.sum()) for before, more in zip(count, found, strict=True)]
    return counts


if __name__ == "__main__":
    main()
