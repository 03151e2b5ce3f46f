"""Use a finished model on a video: masks, and how much of each frame every class covers.

A notebook as a script: run it whole, or cell by cell in an editor that knows `# %%`.

    python examples/use_a_model_on_a_video.py MODEL VIDEO [PICTURE]

MODEL is a run folder, a model.safetensors or an ONNX file. For whole videos with overlays and tables there is
`suture predict`.
"""

# %% The model and the video.
import sys
from pathlib import Path

import cv2
import numpy as np

import suture
from suture.data.video import VideoFile

model, path = sys.argv[1], Path(sys.argv[2])
picture = Path(sys.argv[3] if len(sys.argv) > 3 else "overlay.png")
predictor = suture.Predictor(model)
video = VideoFile(path)
print(f"{path.name}: {len(video)} frames, classes {', '.join(predictor.classes.names)}")

# %% One frame, RGB, in; one mask of class ids out, at the size of the frame.
frame = video.read(0)
mask = predictor(frame)
assert mask.shape == frame.shape[:2]

# %% The mask over the frame.
colors = np.zeros((256, 3), np.uint8)
colors[: len(predictor.classes)] = predictor.classes.colors
overlay = cv2.addWeighted(frame, 0.6, colors[mask], 0.4, 0)
cv2.imwrite(str(picture), overlay[..., ::-1])
print(f"{picture}: the first frame")

# %% All frames in batches: the share of the picture that each class covers.
frames = np.stack([video.read(index) for index in range(len(video))])
masks = np.concatenate([predictor(frames[start : start + 8]) for start in range(0, len(frames), 8)])
for number, name in enumerate(predictor.classes.names):
    areas = (masks == number).mean((1, 2))
    print(f"{name}: {100 * areas.mean():.1f} % on average, at most {100 * areas.max():.1f} %")
