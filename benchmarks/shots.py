"""How well cuts are found in generated video, by frame rate and by what else happens: `python benchmarks/shots.py`.

A cut counts as found when a shot starts at exactly that frame. Of the false ones, the table says during which of the
hard negatives they were: smoke, blood, an instrument entering, a change of light, gaps in the frame numbers.
"""

import argparse
from collections import Counter

from suture.data.render import render_video
from suture.data.scenario import SyntheticSettings, SyntheticVideo, plan
from suture.data.shots import shots_of_frames
from suture.data.view import View

RATES = {1: 80, 5: 100, 25: 150}
"""Frames of each video by frame rate: enough seconds for something to happen."""


def detect(video: SyntheticVideo) -> tuple[set[int], set[int]]:
    """The frames of a generated video at which shots are found to start, and those at which they do."""
    excluded = {frame for first, last in video.excluded for frame in range(first, last + 1)}
    usable = [frame for frame in range(video.settings.frames) if frame not in excluded]
    frames = (frame for number, (frame, _) in enumerate(render_video(video)) if number not in excluded)
    inside = None
    if video.view:
        inside = View(*video.view.rect, video.view.circle).mask(video.settings.width, video.settings.height)
    shots = shots_of_frames(frames, [video.numbers[frame] for frame in usable], usable, inside)
    return set(shots.starts[1:]), {min(frame for frame in usable if frame >= cut) for cut in video.cuts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="generated datasets for each row (default 3)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--size", type=int, default=160, help="side of the frames")
    options = parser.parse_args()
    print(" fps  numbers  videos  cuts  precision  recall  disturbed  false cuts during")
    for fps, length in RATES.items():
        for gaps in (False, True):
            found = right = cuts = videos = disturbed = 0
            during: Counter[str] = Counter()
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                settings = SyntheticSettings(
                    seed=seed, cases=options.cases, frames=length, shots=5, fps=fps,
                    width=options.size, height=options.size, gaps=gaps,
                )  # fmt: skip
                for video in plan(settings):
                    starts, true = detect(video)
                    videos, cuts, found = videos + 1, cuts + len(true), found + len(starts)
                    right += len(starts & true)
                    disturbed += len({f for event in video.events for f in range(event.first, event.last + 1)} - true)
                    for frame in starts - true:
                        # An event that ends changes the picture back at the frame after it.
                        during.update(e.kind for e in video.events if e.first <= frame <= e.last + 1)
            causes = ", ".join(f"{kind} {count}" for kind, count in during.most_common()) or "–"
            precision, recall = right / max(1, found), right / max(1, cuts)
            print(
                f"{fps:>4} {'gaps' if gaps else 'steady':>8} {videos:>7} {cuts:>5} {precision:>10.3f} {recall:>7.3f}"
                f"  {disturbed:>9}  {causes}",
                flush=True,
            )


if __name__ == "__main__":
    main()
