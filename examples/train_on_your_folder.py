"""Train on a folder of videos with a few labelled frames.

A notebook as a script: run it whole, or cell by cell in an editor that supports `# %%`.

    python examples/train_on_your_folder.py [WORK_FOLDER]
"""

# %% A folder of videos and masks. It is generated here, so that the example runs anywhere. Yours has the same shape:
# videos (files or folders of frames), a folder `masks`, and `dataset.yaml`, which `suture check --write` drafts.
import sys
from pathlib import Path

import suture
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic

work = Path(sys.argv[1] if len(sys.argv) > 1 else "example")
data = work / "videos"
if not data.exists():
    write_synthetic(data, SyntheticSettings(cases=5, frames=20, width=96, height=96), container="mp4")

# %% Its contents.
dataset = suture.load_dataset(data)
print("classes:", ", ".join(dataset.classes.names))
for split in ("train", "val", "test"):
    videos = dataset.split(split)
    print(f"{split}: {len(videos)} videos, {sum(len(video.usable) for video in videos)} frames")

# %% Train. The preset `demo` is a small network for a CPU; leave it out on a GPU. Every 10th frame counts as labelled.
# With your own data, leave `data.labelling.every` out: all masks are used. Interrupted, the same cell resumes.
run = suture.train(
    data,
    work / "run",
    preset="demo",
    settings={
        "data.size": 64,
        "data.labelling.every": 10,
        "data.cache": work / "cache",
        # Short, so that the example takes about a minute.
        "method.train.steps": 30,
    },
)

# %% Scores on new videos, and on the unlabelled frames of the labelled videos.
assert run.metrics is not None
for name, scores in run.metrics.items():
    print(f"{name}: mIoU {100 * scores['primary']['value']:.1f} %")

# %% The same model, averaged with mirrored frames.
mirrored = suture.evaluate(run, {"evaluation.flip": True})
print(f"test, with flips: mIoU {100 * mirrored['test']['primary']['value']:.1f} %")
print(f"Next: suture report {run.folder}")
