// Player: fetches frames ahead, shows the newest that was asked for, and the layers of the frame.
import { getBlob, getJson, getMask } from "./api.js";
import { frameUrl, loadLabel } from "./labels.js";
import { difference, paintLayer } from "./layers.js";
import { showBitmap } from "./stage.js";
import { byId, emit, on, state, toast } from "./state.js";

const MAX_KEPT_FRAMES = 40;
const AHEAD_FRAMES = 5;
const MAX_STRIDE = 12; // longer jumps say nothing about the next one
const SETTLE_MS = 120; // predictions are asked for when the user rests on a frame
const bitmaps = new Map(); // index → promise of a bitmap, of the present video
const masks = { draft: null, prediction: null };
let stride = 1; // frames between the last two that were asked for
let showing = null;
let timer = null;
let settled = null;

export async function openVideo(number, index = null) {
  pause();
  const run = state.run ? `?run=${encodeURIComponent(state.run)}` : "";
  const video = await getJson(`/api/videos/${number}${run}`);
  emit("leave");
  Object.assign(state, { number, video, mask: null, isShown: false });
  bitmaps.clear();
  emit("video");
  emit("timeline");
  if (video.error) {
    showMessage(video.error);
    return;
  }
  await showFrame(index ?? video.suggested_frames[0] ?? video.labelled_frames[0] ?? 0);
}

export async function refreshTimeline() {
  const run = state.run ? `?run=${encodeURIComponent(state.run)}` : "";
  state.video = await getJson(`/api/videos/${state.number}${run}`);
  emit("timeline");
  emit("saved");
}

// Shows a frame. While one is fetched, only the newest wish is kept.
export async function showFrame(index) {
  const wanted = Math.min(Math.max(0, Math.round(index)), state.video.frames - 1);
  const step = wanted - state.index;
  if (step) {
    emit("leave");
    state.isShown = false;
  }
  if (step) stride = Math.abs(step) > MAX_STRIDE ? Math.sign(step) : step;
  state.index = wanted;
  emit("index");
  if (showing) {
    await showing;
    return;
  }
  showing = showNewest();
  try {
    await showing;
  } finally {
    showing = null;
  }
}

async function showNewest() {
  let number, index;
  do {
    ({ number, index } = state);
    try {
      const [bitmap, label, draft] = await Promise.all([fetchFrame(index), labelOf(number, index), draftOf(number, index)]);
      if (number !== state.number) continue;
      state.mask = label;
      masks.draft = draft;
      masks.prediction = null;
      state.isShown = index === state.index;
      showBitmap(bitmap);
      showMessage("");
      for (const [name, source] of Object.entries({ label, draft, prediction: null, difference: null })) paintLayer(name, source);
      emit("mask");
      fetchAhead();
    } catch (error) {
      showMessage(error.message);
    }
  } while (number !== state.number || index !== state.index);
  emit("frame");
  clearTimeout(settled);
  settled = setTimeout(showPrediction, SETTLE_MS);
}

const labelOf = (number, index) => (state.video.labelled_frames.includes(index) ? loadLabel(number, index) : null);
const draftOf = (number, index) =>
  (state.video.draft_frames.includes(index) ? getMask(`${frameUrl(number, index)}/masks/draft`) : null);

function fetchFrame(index) {
  if (!bitmaps.has(index)) {
    const promise = getBlob(`${frameUrl(state.number, index)}.jpg`).then(createImageBitmap);
    promise.catch(() => bitmaps.delete(index));
    bitmaps.set(index, promise);
    while (bitmaps.size > MAX_KEPT_FRAMES) bitmaps.delete(bitmaps.keys().next().value);
  }
  return bitmaps.get(index);
}

function fetchAhead() {
  for (let step = 1; step <= AHEAD_FRAMES; step++) {
    const index = state.index + step * stride;
    if (index >= 0 && index < state.video.frames) fetchFrame(index).catch(() => {});
  }
}

async function showPrediction() {
  const wanted = state.layers.prediction.on || state.layers.difference.on;
  if (!wanted || !state.run || !state.video) return;
  const { number, index, run } = state;
  byId("stage").dataset.busy = "predicting";
  try {
    const mask = await getMask(`${frameUrl(number, index)}/masks/prediction?run=${encodeURIComponent(run)}`);
    if (number !== state.number || index !== state.index) return;
    masks.prediction = mask;
    paintLayer("prediction", mask);
    showDifference();
  } catch (error) {
    toast(error.message);
  } finally {
    delete byId("stage").dataset.busy;
    emit("layers");
  }
}

function showDifference() {
  if (state.layers.difference.on) paintLayer("difference", difference(state.mask, masks.prediction));
}

export const draftMask = () => masks.draft;

export function play() {
  if (timer) {
    pause();
    return;
  }
  byId("play").textContent = "❚❚";
  const period = 1000 / Math.min(state.video.fps || 10, 25);
  timer = setInterval(() => {
    if (state.index >= state.video.frames - 1) pause();
    else if (!showing) showFrame(state.index + 1);
  }, period);
}

export function pause() {
  clearInterval(timer);
  timer = null;
  byId("play").textContent = "▶";
}

function showMessage(text) {
  byId("stage-message").hidden = !text;
  byId("stage-message").textContent = text;
}

on("layer-switched", () => {
  if (masks.prediction) showDifference();
  else showPrediction();
});
on("saved", showDifference);
