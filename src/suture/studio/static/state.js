// What the modules share: the state of the page, and events about its changes.
export const IGNORE = 255;

export const state = {
  overview: null, // answer of /api/overview
  number: 0, // place of the video in the list
  index: 0, // frame
  video: null, // answer of /api/videos/NUMBER
  mask: null, // Mask of the frame; null without a label
  isShown: false, // the stage shows this frame and its mask, not yet the one before
  tool: "hand",
  classId: 1,
  size: 16,
  run: "",
  hidden: new Set(), // classes that are not shown
  layers: {
    label: { name: "Label", on: true, opacity: 0.5 },
    draft: { name: "Draft", on: true, opacity: 0.35 },
    prediction: { name: "Prediction", on: false, opacity: 0.15 },
    difference: { name: "Differences", on: false, opacity: 0.7 },
  },
};

const listeners = new Map();

export function on(event, listener) {
  for (const one of event.split(" ")) listeners.set(one, [...(listeners.get(one) ?? []), listener]);
}

export function emit(event, detail) {
  for (const listener of listeners.get(event) ?? []) listener(detail);
}

export const byId = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const { dataset, ...others } = properties;
  const element = Object.assign(document.createElement(tag), others);
  Object.assign(element.dataset, dataset);
  element.append(...children);
  return element;
}

export function toast(message, seconds = 7) {
  const box = make("div", { textContent: message });
  byId("toasts").append(box);
  setTimeout(() => box.remove(), seconds * 1000);
}

export function canLabel() {
  return !state.overview.read_only && !state.overview.problem;
}

// Strokes and labels go to the frame that is on the stage, never to one that is still loading.
export function canPaint() {
  return canLabel() && state.isShown;
}
