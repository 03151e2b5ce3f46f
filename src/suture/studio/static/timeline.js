// Timeline: labelled, suggested and excluded frames, shots, confidence, and the place in the video.
import { showFrame } from "./player.js";
import { byId, on, state } from "./state.js";

const canvas = byId("timeline");
const context = canvas.getContext("2d");
let asked = false;

function requestDraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function draw() {
  const { video } = state;
  if (!video?.frames) return;
  const style = getComputedStyle(canvas), color = (name) => style.getPropertyValue(name).trim();
  const ratio = devicePixelRatio, width = canvas.width / ratio, height = canvas.height / ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const x = (index) => 6 + index / Math.max(1, video.frames - 1) * (width - 12);
  const tick = (index, top, bottom, wide) => context.fillRect(x(index) - wide / 2, top, wide, bottom - top);

  context.fillStyle = color("--line");
  context.fillRect(6, height / 2 - 1, width - 12, 2);
  context.fillStyle = color("--excluded");
  for (const index of video.excluded_frames) tick(index, height / 2 - 5, height / 2 + 5, Math.max(1.5, (width - 12) / video.frames));
  context.fillStyle = color("--soft");
  for (const index of video.shots) tick(index, 3, height - 3, 1);
  drawConfidence(x, height, color("--confidence"));
  context.fillStyle = color("--labelled");
  for (const index of video.labelled_frames) tick(index, height / 2 - 9, height / 2 + 9, 2.5);
  context.fillStyle = color("--suggested");
  for (const index of video.suggested_frames) {
    context.beginPath();
    context.moveTo(x(index), 1);
    context.lineTo(x(index) + 4.5, 7);
    context.lineTo(x(index), 13);
    context.lineTo(x(index) - 4.5, 7);
    context.fill();
  }
  context.fillStyle = color("--ink");
  tick(state.index, 0, height, 2);
  context.beginPath();
  context.arc(x(state.index), height - 5, 5, 0, 7);
  context.fill();
  canvas.setAttribute("aria-valuemax", video.frames - 1);
  canvas.setAttribute("aria-valuenow", state.index);
}

function drawConfidence(x, height, color) {
  const values = state.video.confidence;
  if (values.length < 2) return;
  const least = Math.min(...values.map(([, value]) => value));
  context.strokeStyle = color;
  context.lineWidth = 1.5;
  context.beginPath();
  for (const [index, value] of values) context.lineTo(x(index), height - 4 - (value - least) / (1 - least || 1) * (height - 10));
  context.stroke();
}

function indexAt(event) {
  const box = canvas.getBoundingClientRect();
  return (event.clientX - box.left - 6) / (box.width - 12) * (state.video.frames - 1);
}

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  showFrame(indexAt(event));
});
canvas.addEventListener("pointermove", (event) => {
  if (event.buttons) showFrame(indexAt(event));
});
new ResizeObserver(() => {
  const box = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(box.width * devicePixelRatio));
  canvas.height = Math.max(1, Math.round(box.height * devicePixelRatio));
  requestDraw();
}).observe(canvas);
on("timeline index theme", requestDraw);
