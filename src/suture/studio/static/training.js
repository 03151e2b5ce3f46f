// Training: start, stop and resume, with live curves.
import { getJson, send } from "./api.js";
import { flush } from "./labels.js";
import { byId, make, state, toast } from "./state.js";

const POLL_MS = 1500;
const WIDTH = 560, HEIGHT = 120, MARGIN = 34;
let timer = null;

export async function showTraining() {
  const fill = (id, names) => byId(id).append(...names.map((name) => make("option", { value: name, textContent: name })));
  if (!byId("train-method").options.length) {
    fill("train-method", state.overview.methods);
    fill("train-preset", state.overview.presets);
    byId("train-method").value = "stitch";
    byId("split-hint").hidden = state.overview.videos.some(({ split }) => split === "val" || split === "test");
  }
  await poll();
}

async function poll() {
  clearTimeout(timer);
  const { runs } = await getJson("/api/jobs");
  byId("train-name").value ||= `round${runs.length + 1}`;
  byId("runs").replaceChildren(...runs.map(card));
  if (!byId("train-view").hidden) timer = setTimeout(() => poll().catch(() => {}), POLL_MS);
}

function card(run) {
  const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
  const facts = [run.method, run.labels === null ? "" : `${run.labels} labels`, ...Object.entries(run.scores).map(([split, value]) => `mIoU ${split} ${percent(value)}`)];
  const buttons = [];
  const button = (text, action) => {
    const made = make("button", { textContent: text });
    made.addEventListener("click", () => action().then(poll).catch((error) => toast(error.message)));
    buttons.push(made);
  };
  const control = (action) => () => send("POST", `/api/trainings/${encodeURIComponent(run.name)}/${action}`);
  if (!state.overview.read_only) {
    if (run.state === "running") button("Stop", control("stop"));
    if (run.state === "stopped") button("Resume", control("resume"));
  }
  if (Object.keys(run.scores).length) {
    buttons.push(make("a", { textContent: "Report", href: `/runs/${encodeURIComponent(run.name)}/report.html`, target: "_blank", rel: "noopener" }));
  }
  const title = make("h3", { textContent: run.name }, " ", make("span", { className: "chip", textContent: run.state, dataset: { state: run.state } }));
  const error = run.error ? [make("p", { className: "remark", textContent: run.error })] : [];
  const curves = make("div", { className: "curves" }, ...run.stages.filter((stage) => stage.points.length > 1).map(curve));
  return make("section", { className: "card run", dataset: { run: run.name } }, title, make("p", { className: "hint", textContent: facts.filter(Boolean).join(" · ") }), ...error, curves, make("p", { className: "buttons" }, ...buttons));
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The loss of a stage by step.
function curve({ name, points }) {
  const steps = points.map(([step]) => step), losses = points.map(([, loss]) => loss).filter(Number.isFinite);
  const [first, last] = [steps[0], steps.at(-1)], [least, most] = [Math.min(...losses), Math.max(...losses)];
  const x = (step) => MARGIN + (step - first) / (last - first || 1) * (WIDTH - MARGIN - 6);
  const y = (loss) => 8 + (most - loss) / (most - least || 1) * (HEIGHT - 26);
  const path = points.filter(([, loss]) => Number.isFinite(loss)).map(([step, loss], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(loss).toFixed(1)}`).join("");
  const text = (value, at) => svg("text", at, value);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Loss of ${name}: ${losses.at(-1)?.toPrecision(3)} at step ${last}` },
    svg("path", { class: "axis", d: `M${MARGIN} 4V${HEIGHT - 16}H${WIDTH - 4}` }), svg("path", { class: "line", d: path }),
    text(most.toPrecision(2), { x: MARGIN - 5, y: 14, "text-anchor": "end" }), text(least.toPrecision(2), { x: MARGIN - 5, y: HEIGHT - 18, "text-anchor": "end" }),
    text(`step ${last}`, { x: WIDTH - 4, y: HEIGHT - 3, "text-anchor": "end" }));
  return make("figure", {}, make("figcaption", { textContent: `${name}: loss ${losses.at(-1)?.toPrecision(3) ?? ""}` }), picture);
}

byId("train").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await flush();
    await send("POST", "/api/trainings", {
      name: byId("train-name").value,
      method: byId("train-method").value,
      preset: byId("train-preset").value || null,
      settings: byId("train-settings").value.split(/\s+/).filter(Boolean),
    });
    byId("train-name").value = "";
    await poll();
  } catch (error) {
    toast(error.message);
  }
});
