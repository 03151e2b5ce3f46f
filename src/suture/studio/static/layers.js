// Layers: masks painted as pictures over the frame, with the outlines of their classes.
import { IGNORE, state } from "./state.js";

const DIFFERENCE_COLOR = [255, 45, 149];

class Layer {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.source = null;
  }

  // Paints ids, all or one rectangle; null clears the layer.
  paint(source, colors, rect) {
    this.source = source;
    if (!source) return;
    const { width, height, ids } = source;
    if (this.canvas.width !== width || this.canvas.height !== height || !this.image) {
      Object.assign(this.canvas, { width, height });
      this.context = this.canvas.getContext("2d");
      this.image = this.context.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      rect = null;
    }
    const { x, y, right, bottom } = rect ? grown(rect, width, height) : { x: 0, y: 0, right: width, bottom: height };
    for (let row = y; row < bottom; row++) {
      for (let i = row * width + x, end = row * width + right; i < end; i++) {
        const id = ids[i];
        const isEdge = (row > 0 && ids[i - width] !== id) || (row < height - 1 && ids[i + width] !== id) || ids[i - 1] !== id || ids[i + 1] !== id;
        this.pixels[i] = isEdge ? colors.edges[id] : colors.areas[id];
      }
    }
    this.context.putImageData(this.image, 0, 0, x, y, right - x, bottom - y);
  }
}

const grown = ({ x, y, width, height }, w, h) => ({
  x: Math.max(0, x - 1), y: Math.max(0, y - 1), right: Math.min(w, x + width + 1), bottom: Math.min(h, y + height + 1),
});

const rgba = ([red, green, blue], alpha) => (Math.round(alpha * 255) << 24 | blue << 16 | green << 8 | red) >>> 0;

// Colours by id. What nobody painted, and black classes, stay as the frame is.
function classColors(opacity) {
  const areas = new Uint32Array(256), edges = new Uint32Array(256);
  for (const { id, color } of state.overview.classes) {
    const isBlack = color.every((part) => part === 0);
    if (state.hidden.has(id) || id === IGNORE || (isBlack && id === state.overview.blank)) continue;
    areas[id] = rgba(color, isBlack ? opacity * 0.5 : opacity);
    edges[id] = isBlack ? areas[id] : rgba(color, Math.min(1, opacity + 0.45));
  }
  return { areas, edges };
}

export const layers = Object.fromEntries(Object.keys(state.layers).map((name) => [name, new Layer()]));

export function paintLayer(name, source, rect = null) {
  const { opacity } = state.layers[name];
  layers[name].paint(source, name === "difference" ? differenceColors(opacity) : classColors(opacity), rect);
}

function differenceColors(opacity) {
  const areas = new Uint32Array(256), edges = new Uint32Array(256);
  areas[1] = rgba(DIFFERENCE_COLOR, opacity);
  edges[1] = rgba(DIFFERENCE_COLOR, 1);
  return { areas, edges };
}

export function repaintLayers() {
  for (const name of Object.keys(layers)) paintLayer(name, layers[name].source);
}

// Pixels at which two masks differ; ignored ones do not count.
export function difference(one, other) {
  if (!one || !other || one.ids.length !== other.ids.length) return null;
  const ids = one.ids.map((id, i) => Number(id !== other.ids[i] && id !== IGNORE && other.ids[i] !== IGNORE));
  return { width: one.width, height: one.height, ids };
}
