"use strict";
const content = JSON.parse(document.getElementById("content").textContent);
const IGNORE = 255;
const WRONG = [255, 61, 127];

// Embeddings: a class can be taken out of sight; with Shift, all others.
const cloudButtons = all(".toggles button");
for (const button of cloudButtons) {
  button.addEventListener("click", (event) => {
    const pressed = (one) => one.getAttribute("aria-pressed") === "true";
    const alone = event.shiftKey && cloudButtons.some((one) => one !== button && pressed(one));
    for (const one of cloudButtons) {
      const shown = one === button ? event.shiftKey || !pressed(one) : event.shiftKey ? !alone : pressed(one);
      one.setAttribute("aria-pressed", String(shown));
      for (const cloud of all(`.cloud[data-class="${one.dataset.class}"]`)) cloud.classList.toggle("gone", !shown);
    }
  });
}

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

/** Paint class ids over a photo; a black class is left as it is, as in an overlay video: black would only hide the scene.
    With a truth, the mode `errors` paints what differs from it. */
function paintMask(canvas, { ids, truth, width, height }, mode, strength) {
  canvas.width = width;
  canvas.height = height;
  if (!ids || mode === "photo") return;
  const layer = new ImageData(width, height);
  const alpha = Math.round(2.55 * strength);
  const bare = new Uint8Array(256).fill(1);
  palette.forEach((color, number) => { bare[number] = Math.max(...color) === 0; });
  for (let at = 0; at < ids.length; at++) {
    let color = null, opacity = alpha;
    if (ids[at] === IGNORE) continue;
    if (mode === "errors" && truth && truth !== ids) {
      if (truth[at] !== IGNORE && truth[at] !== ids[at]) color = WRONG, opacity = Math.max(alpha, 90);
    } else if (!bare[ids[at]]) {
      const x = at % width;
      const edge = (x + 1 < width && ids[at + 1] !== ids[at]) || (at + width < ids.length && ids[at + width] !== ids[at])
        || (x && bare[ids[at - 1]]) || (at >= width && bare[ids[at - width]]);
      if (edge || mode !== "outlines") color = palette[ids[at]];
      if (edge) opacity = 255;
    }
    if (color) layer.data.set([...color, opacity], 4 * at);
  }
  canvas.getContext("2d").putImageData(layer, 0, 0);
}

/** The masks of a picture, and which of them is the truth. */
function masksOf({ panels }, item) {
  const masks = item.masks.map((mask) => mask === null ? null : decode(mask, item.width * item.height));
  return { masks, truth: masks[panels.findIndex((panel) => panel.kind === "truth")] ?? null };
}

/** A photo with room for paint over it, and a button that gives it the whole width. */
function pictureElement(kind) {
  const figure = document.createElement("figure");
  figure.className = kind;
  figure.innerHTML = `<figcaption><span></span><b></b><button class="enlarge" aria-label="enlarge" aria-pressed="false">⤢</button></figcaption>
    <div class="picture"><img><canvas></canvas><i></i></div>`;
  const button = figure.querySelector("button");
  const enlarge = () => button.setAttribute("aria-pressed", String(figure.classList.toggle("large")));
  button.addEventListener("click", enlarge);
  figure.querySelector(".picture").addEventListener("click", enlarge);
  return figure;
}

// On a telephone the predictions come first.
const narrow = matchMedia("(max-width: 40rem)").matches;
const inOrder = (panels) => narrow ? [...panels].sort((a, b) => (b.kind === "prediction") - (a.kind === "prediction")) : panels;

/** A score as the tables write it. */
const percent = (score) => score === null || score === undefined ? "" : (100 * score).toFixed(1);

/** What a viewer and a grid have in common: the choice of paint. */
class Painted {
  constructor(element) {
    this.element = element;
    this.mode = element.dataset.mode = "classes";
    this.strength = element.querySelector(".strength");
    this.strength.addEventListener("input", () => this.paint());
    for (const button of all("[data-mode]", element)) {
      button.addEventListener("click", () => this.setMode(button.dataset.mode));
    }
  }

  setMode(mode) {
    if (!this.element.querySelector(`button[data-mode="${mode}"]`)) return;
    this.mode = this.element.dataset.mode = mode;
    press(all("button[data-mode]", this.element), (button) => button.dataset.mode === mode);
    this.paint();
  }
}

function press(buttons, chosen) {
  for (const button of buttons) button.setAttribute("aria-pressed", String(chosen(button)));
}

/** Frames with masks painted over them, one frame at a time. */
class Viewer extends Painted {
  constructor(element, gallery) {
    super(element);
    this.gallery = gallery;
    this.items = gallery.items;
    this.panels = inOrder([{ title: "frame", kind: "photo" }, ...gallery.panels].map((panel, place) => ({ ...panel, place })));
    this.buildPanels();
    this.buildStrip();
    element.querySelector(".previous").addEventListener("click", () => this.show(this.current - 1));
    element.querySelector(".next").addEventListener("click", () => this.show(this.current + 1));
    this.show(0);
  }

  buildPanels() {
    const box = this.element.querySelector(".panels");
    box.style.setProperty("--columns", this.panels.length > 5 ? Math.ceil(this.panels.length / 2) : this.panels.length);
    for (const panel of this.panels) {
      const figure = pictureElement(panel.kind);
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
    const reasons = this.items.map((item) => item.groups.join(", "));
    const alike = new Set(reasons).size === 1;
    this.thumbnails = this.items.map((item, number) => {
      const button = document.createElement("button");
      button.innerHTML = '<img alt=""><span></span>';
      button.querySelector("img").src = item.photo;
      button.querySelector("span").textContent = alike ? `${item.video}, ${item.index}` : reasons[number];
      button.title = `${item.video}, frame ${item.index}`;
      button.setAttribute("aria-label", `${reasons[number]}: ${button.title}`);
      button.addEventListener("click", () => this.show(number));
      strip.append(button);
      return button;
    });
  }

  show(number) {
    this.current = (number + this.items.length) % this.items.length;
    const item = this.items[this.current];
    this.element.querySelector(".count").textContent = `${this.current + 1} of ${this.items.length}`;
    const parts = [`${item.groups.join(", ")}:`, `${item.video}, frame ${item.index}`, item.note && `(${item.note})`];
    this.element.querySelector(".caption").textContent = parts.filter(Boolean).join(" ");
    const { masks, truth } = masksOf(this.gallery, item);
    for (const panel of this.panels) {
      const { place } = panel;
      panel.image.src = item.photo;
      panel.image.alt = `${panel.title}: frame ${item.index} of ${item.video}`;
      panel.ids = place ? masks[place - 1] : null;
      panel.score.textContent = place ? percent(item.scores[place - 1]) : "";
    }
    this.truth = truth;
    this.thumbnails.forEach((button, place) => button.setAttribute("aria-current", String(place === this.current)));
    this.unpoint();
    this.paint();
  }

  paint() {
    const { width, height } = this.items[this.current];
    for (const { canvas, ids } of this.panels) {
      paintMask(canvas, { ids, truth: this.truth, width, height }, this.mode, this.strength.value);
    }
  }

  point(event, picture) {
    const { width, height } = this.items[this.current];
    const box = picture.getBoundingClientRect();
    const x = Math.min(width - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * width)));
    const y = Math.min(height - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * height)));
    const classes = [];
    for (const panel of this.panels) {
      panel.pointer.style.cssText = `display: block; left: ${(x + .5) / width * 100}%; top: ${(y + .5) / height * 100}%`;
      if (panel.ids) classes.push(`${panel.title}: ${content.classes[panel.ids[y * width + x]] ?? "not counted"}`);
    }
    this.element.querySelector(".readout").textContent = classes.join(" · ");
  }

  unpoint() {
    for (const panel of this.panels) panel.pointer.style.display = "none";
    this.element.querySelector(".readout").textContent = "";
  }
}

/** Frames below each other, with all their masks beside them. */
class Grid extends Painted {
  constructor(element, gallery) {
    super(element);
    this.gallery = gallery;
    this.rows = element.querySelector(".rows");
    this.rows.style.setProperty("--columns", gallery.panels.length + 1);
    const buttons = all("[data-group]", element);
    for (const button of buttons) {
      button.addEventListener("click", () => {
        press(buttons, (one) => one === button);
        this.show(button.dataset.group);
      });
    }
    this.show(buttons[0].dataset.group);
  }

  show(group) {
    this.cells = [];
    this.rows.replaceChildren();
    const titles = inOrder([{ title: "frame", kind: "photo" }, ...this.gallery.panels].map((panel, place) => ({ ...panel, place })));
    this.gallery.groups[group].map((number) => this.gallery.items[number]).forEach((item, row) => {
      const { masks, truth } = masksOf(this.gallery, item);
      titles.forEach(({ title, kind, place }, column) => {
        const figure = pictureElement(kind);
        const where = column ? "" : `${item.video}, ${item.index}`;
        figure.querySelector("span").textContent = row ? where : [title, where].filter(Boolean).join(" · ");
        figure.querySelector("b").textContent = place ? percent(item.scores[place - 1]) : "";
        Object.assign(figure.querySelector("img"), { src: item.photo, alt: `${title}: frame ${item.index} of ${item.video}` });
        const { width, height } = item;
        this.cells.push({ canvas: figure.querySelector("canvas"), mask: { ids: place ? masks[place - 1] : null, truth, width, height } });
        this.rows.append(figure);
      });
    });
    this.paint();
  }

  paint() {
    for (const { canvas, mask } of this.cells) paintMask(canvas, mask, this.mode, this.strength.value);
  }
}

// Lists that the reader takes along
for (const box of all(".copy")) {
  const button = box.querySelector("button");
  button.addEventListener("click", () => {
    box.querySelector("textarea").select();
    button.textContent = document.execCommand("copy") ? "copied" : "press Ctrl+C";
  });
}

let palette = content.palettes.dataset;
const galleryOf = (element) => content.viewers[element.dataset.viewer];
const viewers = all(".viewer").map((element) => new Viewer(element, galleryOf(element)));
const grids = all(".grid-of").map((element) => new Grid(element, galleryOf(element)));

// Colours of the classes
const paletteChoice = document.getElementById("palette");
function setPalette(name) {
  palette = content.palettes[name];
  palette.forEach((color, number) => root.style.setProperty(`--class${number}`, `rgb(${color.join(", ")})`));
  for (const painted of [...viewers, ...grids]) painted.paint();
}
paletteChoice.addEventListener("change", () => {
  remember("palette", paletteChoice.value);
  setPalette(paletteChoice.value);
});
if (remembered("palette") in content.palettes) setPalette((paletteChoice.value = remembered("palette")));

// Keys work on the pictures that are in focus, or else on those most in sight.
function inSight(candidates) {
  const focused = candidates.find(({ element }) => element.contains(document.activeElement));
  if (focused) return focused;
  const visible = ({ element }) => {
    const box = element.getBoundingClientRect();
    return Math.min(box.bottom, innerHeight) - Math.max(box.top, 0);
  };
  const best = [...candidates].sort((a, b) => visible(b) - visible(a))[0];
  return best && visible(best) > 0 ? best : null;
}
addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, video")) return;
  const mode = { c: "classes", e: "errors", o: "outlines", p: "photo" }[event.key];
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (mode) inSight([...viewers, ...grids])?.setMode(mode);
  else if (step) {
    const viewer = inSight(viewers);
    if (!viewer) return;
    viewer.show(viewer.current + step);
  } else return;
  event.preventDefault();
});
