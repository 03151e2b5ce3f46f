// Tools: what a stroke does to the mask of the frame, and the steps that change it as a whole.
import { getMask, send, unpackRuns } from "./api.js";
import { changed, frameUrl } from "./labels.js";
import { paintLayer } from "./layers.js";
import { Mask } from "./mask.js";
import { draftMask } from "./player.js";
import { stage } from "./stage.js";
import { byId, canLabel, canPaint, emit, on, state, toast } from "./state.js";

const TOOLS = { hand: "Move", brush: "Brush", eraser: "Eraser", polygon: "Polygon", fill: "Fill", snap: "Snap to edges" };
let last = null; // last point of the stroke

export function chooseTool(name) {
  if (name !== "hand" && !canLabel()) {
    toast(state.overview.problem || "The studio was started with --read-only.");
    return;
  }
  state.tool = name;
  stage.outline = [];
  for (const button of document.querySelectorAll("#tools [data-tool]")) {
    button.setAttribute("aria-pressed", String(button.dataset.tool === name));
  }
  byId("stage").dataset.tool = name;
  showCurrent();
  stage.draw();
}

export function chooseClass(id) {
  if (!state.overview.classes[id]) return;
  state.classId = id;
  emit("class");
  showCurrent();
}

export function setSize(size) {
  state.size = Math.min(150, Math.max(1, Math.round(size)));
  byId("size").value = byId("size-value").value = state.size;
  stage.draw();
}

// The current tool and class, in the corner of the stage.
function showCurrent() {
  const { name, color } = state.overview.classes[state.classId] ?? { name: "", color: [0, 0, 0] };
  const paints = state.tool !== "hand" && state.tool !== "eraser";
  byId("current").textContent = paints ? `${TOOLS[state.tool]} · ${name}` : TOOLS[state.tool];
  byId("current").style.setProperty("--color", paints ? `rgb(${color})` : "transparent");
}

// Begins with the draft where one is shown, else with nothing painted.
function ensureMask() {
  if (state.mask) return;
  const { width, height, ids } = stage.bitmap;
  const draft = state.layers.draft.on ? draftMask() : null;
  state.mask = draft ? new Mask(width, height, draft.ids.slice()) : Mask.blank(width, height, state.overview.blank);
  if (draft) changed("draft");
  paintLayer("label", state.mask);
}

const paintId = () => (state.tool === "eraser" ? state.overview.blank : state.classId);

on("stroke-begin", ([x, y]) => {
  if (!canPaint()) return;
  if (state.tool === "polygon") {
    stage.outline.push([x, y]);
    return;
  }
  ensureMask();
  state.mask.begin();
  last = [x, y];
  if (state.tool === "snap") stage.outline = [[x, y]];
  else if (state.tool === "fill") fill(x, y);
  else paint([[x, y]]);
});

on("stroke-move", (points) => {
  if (state.tool === "snap" && stage.outline.length) stage.outline.push(...points);
  else if (last && state.tool !== "polygon") paint(points);
});

on("stroke-end", async () => {
  if (state.tool === "polygon" || !last) return;
  last = null;
  if (state.tool === "snap") await snap();
  else endStroke();
});

// Before another frame is shown, the stroke of this one ends.
on("leave", () => {
  stage.outline = [];
  if (last && state.tool !== "snap") endStroke();
  last = null;
});

on("stroke-cancel", () => {
  if (!last) return;
  last = null;
  stage.outline = [];
  if (state.mask?.end()) paintLayer("label", state.mask, state.mask.undo());
});

function paint(points) {
  if (state.tool !== "brush" && state.tool !== "eraser") return;
  for (const [x, y] of points) {
    const rect = state.mask.line(...last, x, y, state.size / 2, paintId());
    last = [x, y];
    paintLayer("label", state.mask, rect);
  }
}

function fill(x, y) {
  const [column, row] = [Math.floor(x), Math.floor(y)];
  if (column < 0 || row < 0 || column >= state.mask.width || row >= state.mask.height) return;
  const rect = state.mask.fill(column, row, paintId());
  if (rect) paintLayer("label", state.mask, rect);
}

function endStroke(how = "paint") {
  if (!state.mask.end()) return;
  paintLayer("label", state.mask, state.mask.done.at(-1).rect);
  changed(how);
}

export function closePolygon() {
  if (stage.outline.length > 2 && canPaint()) {
    ensureMask();
    state.mask.begin();
    state.mask.polygon(stage.outline, state.classId);
    endStroke();
  }
  stage.outline = [];
  stage.draw();
}

export function cancelOutline() {
  stage.outline = [];
  stage.draw();
}

// The server finds the edges of what was drawn around.
async function snap() {
  const points = stage.outline, { number, index, mask } = state;
  try {
    if (points.length < 3) return;
    const selection = unpackRuns(await send("POST", `${frameUrl(number, index)}/selection`, { points }));
    if (mask !== state.mask) return; // another frame is shown by now
    mask.replace((i) => (selection.ids[i] ? state.classId : undefined));
    endStroke();
  } catch (error) {
    toast(error.message);
  } finally {
    stage.outline = [];
    stage.draw();
  }
}

export function stepBack(redo) {
  if (!canPaint()) return;
  const rect = redo ? state.mask?.redo() : state.mask?.undo();
  if (!rect) return;
  paintLayer("label", state.mask, rect);
  changed();
}

// Replaces the whole label of the frame.
function setLabel(ids, how) {
  if (!canPaint()) return;
  const { width, height } = stage.bitmap;
  state.mask ??= Mask.blank(width, height, state.overview.blank);
  state.mask.begin();
  state.mask.replace((i) => ids[i]);
  state.mask.end();
  paintLayer("label", state.mask);
  changed(how);
}

export function acceptDraft() {
  if (draftMask()) setLabel(draftMask().ids, "draft");
  else toast("This frame has no draft: suggest frames with a run first.");
}

export function showsNothing() {
  if (!canPaint()) return;
  const { ground } = state.overview;
  if (ground === null) toast("The dataset has no class background, so an empty frame cannot be labelled.");
  else setLabel(new Uint8Array(stage.bitmap.width * stage.bitmap.height).fill(ground), "empty");
}

export async function copyNearest() {
  const { number, index } = state;
  const mask = await getMask(`${frameUrl(number, index)}/masks/carried`);
  if (!mask) toast("No other frame of this video has a label yet.");
  else if (number === state.number && index === state.index) setLabel(mask.ids, "carried");
}

for (const button of document.querySelectorAll("#tools [data-tool]")) {
  button.addEventListener("click", () => chooseTool(button.dataset.tool));
}
byId("undo").addEventListener("click", () => stepBack(false));
byId("redo").addEventListener("click", () => stepBack(true));
byId("size").addEventListener("input", () => setSize(Number(byId("size").value)));
byId("canvas").addEventListener("dblclick", () => state.tool === "polygon" && closePolygon());
