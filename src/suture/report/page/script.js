"use strict";
const content = JSON.parse(document.getElementById("content").textContent);
const IGNORE = 255;
const WRONG = [255, 61, 127];
const root = document.documentElement;

// What the reader chose is remembered where the browser allows it; a local file often may not.
function remembered(key) { try { return localStorage.getItem("suture-" + key); } catch { return null; } }
function remember(key, value) { try { localStorage.setItem("suture-" + key, value); } catch { /* then not */ } }

// Light and dark
const themeButton = document.getElementById("theme");
function setTheme(name) {
  root.dataset.theme = name;
  themeButton.querySelector("span").textContent = name === "dark" ? "light" : "dark";
}
themeButton.addEventListener("click", () => {
  setTheme(root.dataset.theme === "dark" ? "light" : "dark");
  remember("theme", root.dataset.theme);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (system) => {
  if (!remembered("theme")) setTheme(system.matches ? "dark" : "light");
});
setTheme(root.dataset.theme);

// Tabs
for (const list of document.querySelectorAll(".tabs")) {
  const tabs = [...list.querySelectorAll("button")];
  const select = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      document.getElementById(tab.dataset.panel).hidden = tab !== chosen;
    }
  };
  for (const tab of tabs) tab.addEventListener("click", () => select(tab));
}

// The section in sight is marked in the navigation.
const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const sections = [...links.keys()].map((id) => document.getElementById(id));
function markSection() {
  const here = sections.filter((section) => section.getBoundingClientRect().top < innerHeight / 3).pop() || sections[0];
  for (const [id, link] of links) link.classList.toggle("here", id === here.id);
}
addEventListener("scroll", markSection, { passive: true });
markSection();

/** Class ids from their run lengths: each run is 256 × length + id in base 36. */
function decode(text, size) {
  const ids = new Uint8Array(size);
  let at = 0;
  for (const run of text.split(" ")) {
    const number = parseInt(run, 36);
    ids.fill(number & 255, at, (at += number >> 8));
  }
  return ids;
}

/** Frames with masks painted over them, one frame at a time. */
class Viewer {
  constructor(element, { panels, items }) {
    this.element = element;
    this.panels = [{ title: "frame", kind: "photo" }, ...panels];
    this.items = items;
    this.mode = "classes";
    this.strength = element.querySelector(".strength");
    this.buildPanels();
    this.buildStrip();
    element.querySelector(".previous").addEventListener("click", () => this.show(this.current - 1));
    element.querySelector(".next").addEventListener("click", () => this.show(this.current + 1));
    this.strength.addEventListener("input", () => this.paint());
    for (const button of element.querySelectorAll("[data-mode]")) {
      button.addEventListener("click", () => this.setMode(button.dataset.mode));
    }
    this.setMode("classes");
    this.show(0);
  }

  buildPanels() {
    const box = this.element.querySelector(".panels");
    for (const panel of this.panels) {
      const figure = document.createElement("figure");
      figure.className = panel.kind;
      figure.innerHTML = '<figcaption><span></span><b></b></figcaption><div class="picture"><img><canvas></canvas><i></i></div>';
      figure.querySelector("span").textContent = panel.title;
      Object.assign(panel, {
        score: figure.querySelector("b"), image: figure.querySelector("img"),
        canvas: figure.querySelector("canvas"), pointer: figure.querySelector("i"),
      });
      const picture = figure.querySelector(".picture");
      picture.addEventListener("mousemove", (event) => this.point(event, picture));
      picture.addEventListener("mouseleave", () => this.unpoint());
      box.append(figure);
    }
  }

  buildStrip() {
    const strip = this.element.querySelector(".strip");
    this.thumbnails = this.items.map((item, number) => {
      const button = document.createElement("button");
      button.innerHTML = '<img alt=""><span></span>';
      button.querySelector("img").src = item.photo;
      button.querySelector("span").textContent = item.group || item.video + " " + item.index;
      button.title = `${item.video}, frame ${item.index}`;
      button.addEventListener("click", () => this.show(number));
      strip.append(button);
      return button;
    });
  }

  setMode(mode) {
    if (!this.element.querySelector(`[data-mode="${mode}"]`)) return;
    this.mode = this.element.dataset.mode = mode;
    for (const button of this.element.querySelectorAll("[data-mode]")) {
      button.setAttribute("aria-checked", String(button.dataset.mode === mode));
    }
    this.paint();
  }

  show(number) {
    this.current = (number + this.items.length) % this.items.length;
    const item = this.items[this.current];
    this.element.querySelector(".count").textContent = `${this.current + 1} of ${this.items.length}`;
    const said = [item.group && item.group + ":", `${item.video}, frame ${item.index}`, item.note && `(${item.note})`];
    this.element.querySelector(".caption").textContent = said.filter(Boolean).join(" ");
    this.panels.forEach((panel, place) => {
      panel.image.src = item.photo;
      panel.image.alt = `${panel.title}: frame ${item.index} of ${item.video}`;
      const mask = place ? item.masks[place - 1] : null;
      panel.ids = mask === null ? null : decode(mask, item.width * item.height);
      const score = place ? item.scores[place - 1] : null;
      panel.score.textContent = score === null ? "" : (100 * score).toFixed(1);
    });
    this.truth = this.panels.find((panel) => panel.kind === "truth")?.ids;
    this.thumbnails.forEach((button, place) => button.setAttribute("aria-current", String(place === this.current)));
    const strip = this.element.querySelector(".strip"), thumbnail = this.thumbnails[this.current];
    strip.scrollLeft = thumbnail.offsetLeft - strip.offsetLeft - strip.clientWidth / 2 + thumbnail.clientWidth / 2;
    this.unpoint();
    this.paint();
  }

  paint() {
    if (this.current === undefined) return;
    const { width, height } = this.items[this.current];
    for (const panel of this.panels) {
      const { canvas, ids, kind } = panel;
      canvas.width = width;
      canvas.height = height;
      if (!ids || this.mode === "photo") continue;
      const layer = new ImageData(width, height);
      const alpha = Math.round(2.55 * this.strength.value);
      for (let at = 0; at < ids.length; at++) {
        let color = null, opacity = alpha;
        if (ids[at] === IGNORE) continue;
        if (this.mode === "errors" && kind === "prediction") {
          if (this.truth && this.truth[at] !== IGNORE && this.truth[at] !== ids[at]) color = WRONG, opacity = Math.max(alpha, 90);
        } else {
          const x = at % width;
          const edge = (x + 1 < width && ids[at + 1] !== ids[at]) || (at + width < ids.length && ids[at + width] !== ids[at]);
          if (edge || this.mode !== "outlines") color = palette[ids[at]];
          if (edge) opacity = 255;
        }
        if (color) layer.data.set([...color, opacity], 4 * at);
      }
      canvas.getContext("2d").putImageData(layer, 0, 0);
    }
  }

  point(event, picture) {
    const { width, height } = this.items[this.current];
    const box = picture.getBoundingClientRect();
    const x = Math.min(width - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * width)));
    const y = Math.min(height - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * height)));
    const said = [];
    for (const panel of this.panels) {
      panel.pointer.style.cssText = `display: block; left: ${(x + .5) / width * 100}%; top: ${(y + .5) / height * 100}%`;
      if (panel.ids) said.push(`${panel.title}: ${content.classes[panel.ids[y * width + x]] ?? "not counted"}`);
    }
    this.element.querySelector(".readout").textContent = said.join(" · ");
  }

  unpoint() {
    for (const panel of this.panels) panel.pointer.style.display = "none";
    this.element.querySelector(".readout").textContent = "";
  }
}

let palette = content.palettes.dataset;
const viewers = [...document.querySelectorAll(".viewer")].map(
  (element) => new Viewer(element, content.viewers[element.dataset.viewer]),
);

// Colours of the classes
const paletteChoice = document.getElementById("palette");
function setPalette(name) {
  palette = content.palettes[name];
  palette.forEach((color, number) => root.style.setProperty(`--class${number}`, `rgb(${color.join(", ")})`));
  for (const viewer of viewers) viewer.paint();
}
paletteChoice.addEventListener("change", () => {
  remember("palette", paletteChoice.value);
  setPalette(paletteChoice.value);
});
if (remembered("palette") in content.palettes) setPalette((paletteChoice.value = remembered("palette")));

// Keys work on the viewer that is in focus, or else on the one most in sight.
function viewerInSight() {
  const focused = viewers.find((viewer) => viewer.element.contains(document.activeElement));
  if (focused) return focused;
  const visible = (viewer) => {
    const box = viewer.element.getBoundingClientRect();
    return Math.min(box.bottom, innerHeight) - Math.max(box.top, 0);
  };
  const best = [...viewers].sort((a, b) => visible(b) - visible(a))[0];
  return best && visible(best) > 0 ? best : null;
}
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  const viewer = viewerInSight();
  if (!viewer) return;
  const mode = { c: "classes", e: "errors", o: "outlines", p: "photo" }[event.key];
  if (event.key === "ArrowLeft") viewer.show(viewer.current - 1);
  else if (event.key === "ArrowRight") viewer.show(viewer.current + 1);
  else if (mode) viewer.setMode(mode);
  else return;
  event.preventDefault();
});
