"use strict";
// Set before the first paint: the reader's choice, else the system's.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("suture-theme"); } catch { /* storage is blocked */ }
  document.documentElement.dataset.theme = chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
})();
