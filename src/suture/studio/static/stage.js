// The stage: frame and layers on one canvas, with zoom and pan by mouse, touch and pen.
import { byId, emit, on, state } from "./state.js";
import { layers } from "./layers.js";

const MAX_SCALE = 40;
const canvas = byId("canvas");
const context = canvas.getContext("2d");
const view = { scale: 1, x: 0, y: 0, fitted: true };
export const stage = {
  bitmap: null,
  pointer: null, // place of the pointer in the frame
  outline: [], // points of the polygon that is being drawn
  draw: requestDraw,
  fit,
  zoom: (factor) => zoomAt(factor, canvas.width / 2, canvas.height / 2),
};
let asked = false;
const pointers = new Map();
let drawing = null; // id of the pointer that draws
let panning = false;
let hasPen = false;

export function showBitmap(bitmap) {
  const isNew = !stage.bitmap || stage.bitmap.width !== bitmap.width || stage.bitmap.height !== bitmap.height;
  stage.bitmap = bitmap;
  if (isNew) fit();
  performance.mark("frame"); // for the benchmark
  requestDraw();
}

function fit() {
  if (!stage.bitmap) return;
  const { width, height } = stage.bitmap;
  view.scale = Math.min(canvas.width / width, canvas.height / height);
  view.x = (canvas.width - width * view.scale) / 2;
  view.y = (canvas.height - height * view.scale) / 2;
  view.fitted = true;
  requestDraw();
}

function zoomAt(factor, x, y) {
  if (!stage.bitmap) return;
  const least = Math.min(canvas.width / stage.bitmap.width, canvas.height / stage.bitmap.height, 1) / 2;
  const scale = Math.min(MAX_SCALE, Math.max(least, view.scale * factor));
  view.x = x - (x - view.x) * scale / view.scale;
  view.y = y - (y - view.y) * scale / view.scale;
  view.scale = scale;
  view.fitted = false;
  requestDraw();
}

function requestDraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function draw() {
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!stage.bitmap) return;
  context.setTransform(view.scale, 0, 0, view.scale, view.x, view.y);
  context.imageSmoothingEnabled = view.scale < 3;
  context.drawImage(stage.bitmap, 0, 0);
  context.imageSmoothingEnabled = view.scale < 1;
  for (const [name, layer] of Object.entries(layers)) {
    const hiddenByLabel = name === "draft" && state.mask;
    if (state.layers[name].on && layer.source && !hiddenByLabel) context.drawImage(layer.canvas, 0, 0);
  }
  drawOutline();
  drawCursor();
}

function drawOutline() {
  if (!stage.outline.length) return;
  context.beginPath();
  for (const [x, y] of stage.outline) context.lineTo(x, y);
  if (stage.pointer && state.tool === "polygon") context.lineTo(...stage.pointer);
  for (const [style, width] of [["#000", 3], ["#fff", 1.5]]) {
    context.strokeStyle = style;
    context.lineWidth = width * devicePixelRatio / view.scale;
    context.stroke();
  }
}

function drawCursor() {
  if (!stage.pointer || (state.tool !== "brush" && state.tool !== "eraser")) return;
  context.beginPath();
  context.arc(...stage.pointer, state.size / 2, 0, 2 * Math.PI);
  for (const [style, width] of [["rgba(0, 0, 0, .7)", 3], ["#fff", 1.2]]) {
    context.strokeStyle = style;
    context.lineWidth = width * devicePixelRatio / view.scale;
    context.stroke();
  }
}

function place(event) {
  const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
  return [((event.clientX - box.left) * ratio - view.x) / view.scale, ((event.clientY - box.top) * ratio - view.y) / view.scale];
}

function inCanvas(event) {
  const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
  return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
}

canvas.addEventListener("pointerdown", (event) => {
  canvas.focus({ preventScroll: true });
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, inCanvas(event));
  hasPen ||= event.pointerType === "pen";
  const moves = state.tool === "hand" || event.button > 0 || (hasPen && event.pointerType === "touch");
  if (pointers.size > 1 || moves) {
    if (drawing !== null) emit("stroke-cancel");
    drawing = null;
    panning = true;
  } else {
    drawing = event.pointerId;
    stage.pointer = place(event);
    emit("stroke-begin", stage.pointer);
  }
  event.preventDefault();
});

canvas.addEventListener("pointermove", (event) => {
  stage.pointer = place(event);
  if (event.pointerId === drawing) {
    const parts = event.getCoalescedEvents?.() ?? [];
    emit("stroke-move", (parts.length ? parts : [event]).map(place));
  } else if (panning && pointers.has(event.pointerId)) {
    const before = [...pointers.values()];
    pointers.set(event.pointerId, inCanvas(event));
    pan(before, [...pointers.values()]);
  }
  requestDraw();
});

// Moves the frame with one pointer, moves and scales it with two.
function pan(before, after) {
  const middle = (points) => [0, 1].map((i) => points.reduce((sum, point) => sum + point[i], 0) / points.length);
  const spread = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]);
  const [from, to] = [middle(before), middle(after)];
  view.x += to[0] - from[0];
  view.y += to[1] - from[1];
  view.fitted = false;
  if (after.length > 1 && spread(before) > 0) zoomAt(spread(after) / spread(before), ...to);
}

function release(event) {
  pointers.delete(event.pointerId);
  if (event.pointerId === drawing) {
    drawing = null;
    emit(event.type === "pointercancel" ? "stroke-cancel" : "stroke-end");
  }
  if (!pointers.size) panning = false;
}
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => { stage.pointer = null; requestDraw(); });
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("wheel", (event) => {
  zoomAt(Math.exp(-event.deltaY / 400), ...inCanvas(event));
  event.preventDefault();
}, { passive: false });

new ResizeObserver(() => {
  const box = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(box.width * devicePixelRatio));
  canvas.height = Math.max(1, Math.round(box.height * devicePixelRatio));
  if (view.fitted) fit();
  requestDraw();
}).observe(canvas);

byId("zoom-in").addEventListener("click", () => stage.zoom(1.4));
byId("zoom-out").addEventListener("click", () => stage.zoom(1 / 1.4));
byId("zoom-fit").addEventListener("click", fit);
on("layers mask", requestDraw);

// For tests and benchmarks: the place on the screen of a point of the frame.
export function toScreen(x, y) {
  const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
  return [box.left + (x * view.scale + view.x) / ratio, box.top + (y * view.scale + view.y) / ratio];
}
