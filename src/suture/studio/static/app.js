// The page: its parts, its keys, and what happens first.
import { getJson, send } from "./api.js";
import { flush, removeLabel, restorePending, setExcluded } from "./labels.js";
import { paintLayer } from "./layers.js";
import { loadOverview, loadRuns } from "./panels.js";
import { draftMask, openVideo, pause, play, refreshTimeline, showFrame } from "./player.js";
import { showRounds } from "./rounds.js";
import { stage, toScreen } from "./stage.js";
import { byId, canLabel, emit, make, on, state, toast } from "./state.js";
import "./timeline.js";
import { acceptDraft, cancelOutline, chooseClass, chooseTool, closePolygon, copyNearest, setSize, showsNothing, stepBack } from "./tools.js";
import { showTraining } from "./training.js";

const isLabelled = () => state.video?.labelled_frames.includes(state.index);
const isExcluded = () => state.video?.excluded_frames.includes(state.index);

function showFrameState() {
  if (!state.video) return;
  const states = [
    [isExcluded(), "excluded"],
    [isLabelled(), "labelled"],
    [draftMask() && !isLabelled(), "draft"],
    [state.video.suggested_frames.includes(state.index), "suggested"],
  ];
  const [, name] = states.find(([holds]) => holds) ?? [true, "not labelled"];
  byId("frame-state").textContent = name;
  byId("frame-state").dataset.state = name;
  byId("frame-number").value = state.index;
  byId("frame-count").textContent = `of ${(state.video.frames - 1).toLocaleString()}`;
  byId("exclude").textContent = isExcluded() ? "Include" : "Exclude";
  const writable = canLabel();
  byId("accept").disabled = !writable || !draftMask();
  byId("accept").classList.toggle("primary", Boolean(draftMask()) && !isLabelled());
  byId("unlabel").disabled = !writable || !isLabelled();
  for (const id of ["copy", "nothing", "exclude"]) byId(id).disabled = !writable;
}
on("index mask timeline frame video", showFrameState);

// The next suggested frame of this video, else of the next video that has one.
async function nextSuggestion() {
  const { videos } = state.overview;
  const later = state.video.suggested_frames.find((index) => index > state.index) ?? state.video.suggested_frames.find((index) => index !== state.index);
  if (later !== undefined) {
    await showFrame(later);
    return;
  }
  await flush();
  await loadOverview();
  const order = videos.map((_, step) => (state.number + 1 + step) % videos.length);
  const number = order.find((one) => one !== state.number && state.overview.videos[one].suggested);
  if (number === undefined) toast("No suggested frame is left: ask for more under “Next frames”.");
  else await openVideo(number);
}

function nextLabelled(step) {
  const frames = step > 0 ? state.video.labelled_frames : state.video.labelled_frames.toReversed();
  const index = frames.find((one) => (one - state.index) * step > 0);
  if (index !== undefined) showFrame(index);
}

const act = (action) => async () => {
  try {
    await action();
  } catch (error) {
    toast(error.message);
  }
};

const unlabel = act(async () => {
  if (!isLabelled() || !canLabel()) return;
  await removeLabel();
  paintLayer("label", null);
  await refreshTimeline();
});
const exclude = act(async () => {
  if (!canLabel()) return;
  await setExcluded(!isExcluded());
  await refreshTimeline();
});

const KEYS = [
  ["ArrowLeft", "←", "Frame before (with Shift: 10 frames)", (event) => showFrame(state.index - (event.shiftKey ? 10 : 1))],
  ["ArrowRight", "→", "Next frame (with Shift: 10 frames)", (event) => showFrame(state.index + (event.shiftKey ? 10 : 1))],
  ["Home", "Home", "First frame", () => showFrame(0)],
  ["End", "End", "Last frame", () => showFrame(state.video.frames - 1)],
  [" ", "Space", "Play or pause", play],
  [",", ",", "Labelled frame before", () => nextLabelled(-1)],
  [".", ".", "Next labelled frame", () => nextLabelled(1)],
  ["n", "N", "Next suggested frame", act(nextSuggestion)],
  ["a", "A", "Accept the draft", acceptDraft],
  ["c", "C", "Carry the nearest label here", act(copyNearest)],
  ["o", "O", "Looked at: shows nothing", showsNothing],
  ["Delete", "Delete", "Not labelled: remove the label", unlabel],
  ["x", "X", "Exclude the frame, or include it", exclude],
  ["b", "B", "Brush", () => chooseTool("brush")],
  ["e", "E", "Eraser", () => chooseTool("eraser")],
  ["p", "P", "Polygon: Enter closes it, Escape cancels", () => chooseTool("polygon")],
  ["f", "F", "Fill", () => chooseTool("fill")],
  ["s", "S", "Snap: draw roughly around an object", () => chooseTool("snap")],
  ["h", "H", "Move", () => chooseTool("hand")],
  ["Enter", "Enter", "Close the polygon", closePolygon],
  ["Escape", "Esc", "Cancel the polygon", cancelOutline],
  ["[", "[", "Smaller brush", () => setSize(state.size / 1.25 - 0.5)],
  ["]", "]", "Larger brush", () => setSize(state.size * 1.25 + 0.5)],
  ["+", "+", "Zoom in (or the wheel)", () => stage.zoom(1.4)],
  ["-", "−", "Zoom out", () => stage.zoom(1 / 1.4)],
  ["0", "0", "Fit the frame", () => stage.fit()],
  ["?", "?", "This list", () => byId("help").showModal()],
];

addEventListener("keydown", (event) => {
  const target = event.target;
  const typing = target.closest("input:not([type=range], [type=checkbox]), select, textarea, dialog[open]");
  if (typing || document.body.dataset.view !== "label" || !state.video || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if ((event.ctrlKey || event.metaKey) && (key === "z" || key === "y")) {
    stepBack(key === "y" || event.shiftKey);
    event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey) return;
  if (/^[1-9]$/.test(key)) chooseClass(Number(key) - 1);
  const isPressed = (key === " " || key === "Enter") && target.closest("button");
  const binding = KEYS.find(([name]) => name === key);
  if (!binding || isPressed || (target.type === "range" && key.startsWith("Arrow"))) return;
  event.preventDefault();
  binding[3](event);
});

const CLICKS = {
  previous: () => showFrame(state.index - 1), next: () => showFrame(state.index + 1), play,
  accept: acceptDraft, copy: act(copyNearest), nothing: showsNothing, unlabel, exclude,
  "next-suggestion": act(nextSuggestion), "help-button": () => byId("help").showModal(),
};
for (const [id, action] of Object.entries(CLICKS)) byId(id).addEventListener("click", action);
byId("frame-number").addEventListener("change", () => showFrame(Number(byId("frame-number").value) || 0));
byId("keys").append(...KEYS.flatMap(([, shown, text]) => [make("dt", {}, make("kbd", { textContent: shown })), make("dd", { textContent: text })]),
  make("dt", {}, make("kbd", { textContent: "1" }), "–", make("kbd", { textContent: "9" })), make("dd", { textContent: "Class" }),
  make("dt", {}, make("kbd", { textContent: "Ctrl+Z" })), make("dd", { textContent: "Undo (with Shift: redo)" }));

byId("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("suture-theme", theme); } catch { /* storage is blocked */ }
  emit("theme");
});

// Pages
const VIEWS = { label: async () => loadRuns(), train: showTraining, rounds: showRounds };
async function showView(name) {
  pause();
  document.body.dataset.view = name;
  for (const view of Object.keys(VIEWS)) {
    byId(`${view}-view`).hidden = view !== name;
    byId(`tab-${view}`).setAttribute("aria-selected", String(view === name));
  }
  await VIEWS[name]();
}
for (const view of Object.keys(VIEWS)) byId(`tab-${view}`).addEventListener("click", act(() => showView(view)));

byId("setup-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.submitter;
  Object.assign(button, { disabled: true, textContent: "Looking at the videos …" });
  try {
    await send("POST", "/api/classes", { names: byId("setup-names").value.split("\n") });
    location.reload();
  } catch (error) {
    byId("setup-error").textContent = error.message;
    Object.assign(button, { disabled: false, textContent: "Begin" });
  }
});
byId("setup").addEventListener("cancel", (event) => event.preventDefault()); // there is nothing else to do yet

async function start() {
  await loadOverview();
  const { overview } = state;
  byId("dataset").textContent = overview.name;
  document.title = `${overview.name} · Suture studio`;
  state.classId = Math.min(1, overview.classes.length - 1);
  if (overview.read_only) byId("save").textContent = "Read only";
  else if (overview.needs_classes) byId("setup").showModal();
  else if (overview.problem) toast(overview.problem, 20);
  restorePending();
  await openVideo(0);
  await loadRuns();
  chooseTool(canLabel() ? "brush" : "hand");
  document.body.dataset.ready = "true";
  if (overview.videos.some((video) => !video.frames && !video.error)) setTimeout(loadOverview, 2500);
}

window.studio = { state, toScreen, showFrame, getJson }; // for tests and benchmarks
start().catch((error) => toast(error.message, 60));
