// Labels: the mask of the frame, and its way to the server. Each change is kept in the browser's storage until the
// server has confirmed it, so neither a crash of the server nor one of the browser loses a stroke.
import { fromBase64, getMask, packRuns, putBytes, send, ServerError, toBase64, unpackRuns } from "./api.js";
import { Mask } from "./mask.js";
import { byId, canLabel, emit, state, toast } from "./state.js";

const SAVE_DELAY_MS = 400;
const RETRY_MS = 1500;
const MAX_IDLE_S = 30; // longer pauses are no work
const pending = new Map(); // key → change that the server has not confirmed
let saving = false;
let timer = null;
let lastInput = performance.now();
let worked = 0; // seconds of work since the last change

const prefix = () => `suture:${state.overview.key}:`;
export const frameUrl = (number, index) => `/api/videos/${number}/frames/${index}`;

addEventListener("pointermove", countWork, { passive: true });
addEventListener("keydown", countWork);
function countWork() {
  const now = performance.now();
  worked += Math.min((now - lastInput) / 1000, MAX_IDLE_S);
  lastInput = now;
}

// Sends again what an earlier page could not send.
export function restorePending() {
  const numbers = new Map(state.overview.videos.map((video, number) => [video.id, number]));
  for (const key of Object.keys(localStorage).filter((one) => one.startsWith(prefix()))) {
    const [video, index] = JSON.parse(key.slice(prefix().length));
    if (!numbers.has(video)) continue;
    const { how, seconds, data } = JSON.parse(localStorage.getItem(key));
    pending.set(`${key} ${how}`, { key, number: numbers.get(video), index, how, seconds, bytes: fromBase64(data) });
  }
  if (pending.size && canLabel()) sendPending();
}

// The label of a frame: what waits here, else what the server has.
export async function loadLabel(number, index) {
  const waiting = [...pending.values()].findLast((change) => change.number === number && change.index === index);
  const content = waiting ? unpackRuns(waiting.bytes.slice().buffer) : await getMask(`${frameUrl(number, index)}/masks/label`);
  return content && new Mask(content.width, content.height, content.ids);
}

// Call it after each change of `state.mask`.
export function changed(how = "paint") {
  const { number, index, mask, video } = state;
  const key = prefix() + JSON.stringify([video.id, index]);
  const runs = packRuns(mask);
  const name = `${key} ${how}`;
  const change = { key, number, index, how, seconds: worked + (pending.get(name)?.seconds ?? 0), bytes: new Uint8Array(runs.buffer) };
  worked = 0;
  pending.delete(name); // it goes to the end: the last change of a frame is sent last
  pending.set(name, change);
  try {
    localStorage.setItem(key, JSON.stringify({ how, seconds: change.seconds, data: toBase64(runs) }));
  } catch {
    toast("The browser's storage is full: strokes are safe only once they are saved.");
  }
  if (!video.labelled_frames.includes(index)) {
    video.labelled_frames = [...video.labelled_frames, index].sort((a, b) => a - b);
    video.suggested_frames = video.suggested_frames.filter((one) => one !== index);
    emit("timeline");
  }
  showState("saving");
  clearTimeout(timer);
  timer = setTimeout(sendPending, how === "paint" ? SAVE_DELAY_MS : 0);
  emit("mask");
}

async function sendPending() {
  clearTimeout(timer);
  if (saving) return;
  saving = true;
  while (pending.size) {
    const [name, change] = pending.entries().next().value;
    try {
      showState("saving");
      const query = `how=${change.how}&seconds=${Math.min(change.seconds, 600).toFixed(1)}`;
      await putBytes(`${frameUrl(change.number, change.index)}/label?${query}`, change.bytes);
      confirmed(name, change);
    } catch (error) {
      if (error instanceof ServerError) toast(`Not saved: ${error.message}`);
      showState("unsaved");
      timer = setTimeout(sendPending, RETRY_MS);
      saving = false;
      return;
    }
  }
  saving = false;
  showState("saved");
  emit("saved");
}

function confirmed(name, change) {
  if (pending.get(name) === change) pending.delete(name);
  const isLast = ![...pending.values()].some((other) => other.key === change.key);
  if (isLast) localStorage.removeItem(change.key);
}

const STATES = { saved: "Saved", saving: "Saving …", unsaved: "Not saved yet: kept in this browser" };
function showState(name) {
  byId("save").dataset.state = name;
  byId("save").textContent = STATES[name];
}

// Waits until all changes of before are on the server, as a training or an exclusion needs it.
export async function flush() {
  while (pending.size || saving) {
    if (byId("save").dataset.state === "unsaved") throw new ServerError("Some labels are not saved yet.");
    await sendPending();
    await new Promise((done) => setTimeout(done, 20));
  }
}

export async function removeLabel() {
  await flush();
  await send("DELETE", `${frameUrl(state.number, state.index)}/label`);
  state.mask = null;
  emit("mask");
}

export async function setExcluded(excluded) {
  await flush();
  await send("PUT", `${frameUrl(state.number, state.index)}/excluded`, { excluded });
}

addEventListener("beforeunload", (event) => {
  if (pending.size) event.preventDefault();
});
