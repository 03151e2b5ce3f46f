// Panels: the list of videos, the legend of classes, and the layers.
import { getJson, send } from "./api.js";
import { repaintLayers } from "./layers.js";
import { openVideo, refreshTimeline } from "./player.js";
import { byId, emit, make, on, state, toast } from "./state.js";
import { chooseClass } from "./tools.js";

const POLL_MS = 700;
let following = false;

export async function loadOverview() {
  state.overview = await getJson("/api/overview");
  emit("overview");
}

function showVideos() {
  const { videos } = state.overview;
  const labelled = videos.reduce((sum, video) => sum + video.labelled, 0);
  byId("progress").textContent = `${labelled} labelled`;
  byId("video-list").replaceChildren(...videos.map((video, number) => {
    const facts = [video.split ?? "no split", video.frames ? `${video.labelled} / ${video.frames.toLocaleString()}` : `${video.labelled} labelled`];
    if (video.suggested) facts.push(`◆ ${video.suggested}`);
    const text = make("span", {}, make("b", { textContent: video.id }), make("small", { textContent: facts.join(" · ") }));
    const picture = make("img", { alt: "", loading: "lazy", width: 72, height: 48, src: `/api/videos/${number}/thumbnail.jpg?${state.overview.key}` });
    const button = make("button", { title: video.error || `case ${video.case}, ${video.suggested} frames suggested` }, picture, text);
    button.setAttribute("aria-current", String(number === state.number));
    button.addEventListener("click", () => openVideo(number));
    return make("li", {}, button);
  }));
}

function showClasses() {
  byId("classes").replaceChildren(...state.overview.classes.map(({ id, name, color }) => {
    const swatch = make("i");
    swatch.style.background = `rgb(${color})`;
    const key = id < 9 ? make("kbd", { textContent: id + 1 }) : "";
    const choose = make("button", { className: "class", title: `Paint ${name}` }, swatch, make("span", { textContent: name }), key);
    choose.setAttribute("aria-pressed", String(id === state.classId));
    choose.addEventListener("click", () => chooseClass(id));
    const isHidden = state.hidden.has(id);
    const eye = make("button", { className: "eye plain", title: isHidden ? `Show ${name}` : `Hide ${name}`, textContent: isHidden ? "○" : "●" });
    eye.setAttribute("aria-label", `Show ${name}`);
    eye.setAttribute("aria-pressed", String(!isHidden));
    eye.addEventListener("click", () => {
      state.hidden[isHidden ? "delete" : "add"](id);
      repaintLayers();
      emit("layers");
      showClasses();
    });
    return make("li", {}, choose, eye);
  }));
}

function showLayers() {
  byId("layers").replaceChildren(...Object.entries(state.layers).map(([name, layer]) => {
    const box = make("input", { type: "checkbox", checked: layer.on, id: `layer-${name}` });
    box.addEventListener("change", () => { layer.on = box.checked; emit("layers"); emit("layer-switched"); });
    const slider = make("input", { type: "range", min: 0, max: 1, step: 0.05, value: layer.opacity });
    slider.setAttribute("aria-label", `Opacity of ${layer.name}`);
    slider.addEventListener("input", () => { layer.opacity = Number(slider.value); repaintLayers(); emit("layers"); });
    return make("div", { className: "layer" }, make("label", {}, box, ` ${layer.name}`), slider);
  }));
}

export async function loadRuns() {
  const { runs, suggestions } = await getJson("/api/jobs");
  if (suggestions.running) followSuggestions();
  const names = runs.filter((run) => run.trained).map((run) => run.name);
  byId("run").replaceChildren(...["", ...names].map((name) => make("option", { value: name, textContent: name || "none" })));
  if (!names.includes(state.run)) state.run = "";
  byId("run").value = state.run;
}

byId("run").addEventListener("change", () => {
  state.run = byId("run").value;
  refreshTimeline();
  emit("layer-switched");
});

byId("suggest").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await send("POST", "/api/suggestions", { run: state.run || null, budget: Number(byId("budget").value) });
    await followSuggestions();
  } catch (error) {
    toast(error.message);
  }
});

async function followSuggestions() {
  if (following) return;
  following = true;
  for (;;) {
    const { suggestions } = await getJson("/api/jobs");
    const { running, what, done, total, error } = suggestions;
    byId("suggest-state").textContent = error || (running && total ? `${what}: ${done} of ${total}` : what);
    if (!running) break;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  following = false;
  await Promise.all([loadOverview(), refreshTimeline()]);
  emit("suggestions");
}

on("overview video", showVideos);
on("overview class", showClasses);
on("overview", showLayers);
on("saved", async () => {
  const { video, overview } = state;
  overview.videos[state.number].labelled = video.labelled_frames.length;
  showVideos();
});
