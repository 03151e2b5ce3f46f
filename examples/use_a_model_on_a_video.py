"""Predict a video with a finished model: masks, and the share of each frame that every class covers.

A notebook as a script: run it whole, or cell by cell in an editor that supports `# %%`.

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

# %% One RGB frame in, one mask of class ids out, at the size of the frame.
frame = video.read(0)
mask = predictor(frame)
assert mask.shape == frame.shape[:2]

# %% The mask over the frame.
colors = np.zeros((256, 3), np.uint8)
colors[: len(predictor.classes)] = predictor.classes.colors
overlay = cv2.addWeighted(frame, 0.6, colors[mask], 0.4, 0)
cv2.imwrite(str(picture), overlay[..., ::-1])
print(f"{picture}: the first frame")

# %% All frames, one after the other: the share of the picture that each class covers.
areas = []
for _, mask in suture.predict(model, path):
    areas.append([(mask == number).mean() for number in range(len(predictor.classes))])
for name, shares in zip(predictor.classes.names, np.array(areas).T, strict=True):
    print(f"{name}: {100 * shares.mean():.1f} % on average, at most {100 * shares.max():.1f} %")
