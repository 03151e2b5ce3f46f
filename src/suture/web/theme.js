"use strict";
// Every page: light and dark, tabs, boxes that move sideways, and the section in sight.
const root = document.documentElement;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

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

// Tabs: arrow keys go from one to the next.
for (const list of all(".tabs")) {
  const tabs = all("button", list);
  for (const tab of tabs) {
    const panel = document.getElementById(tab.getAttribute("aria-controls"));
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
  }
  const select = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
  };
  for (const [place, tab] of tabs.entries()) {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(place + step + tabs.length) % tabs.length];
      select(next);
      next.focus();
      event.preventDefault();
    });
  }
}

// What moves sideways can be reached and moved by keys, in every browser.
const moving = new ResizeObserver((boxes) => {
  for (const { target } of boxes) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
for (const box of all(".scroll")) moving.observe(box);

// The section in sight is marked in the navigation.
const links = new Map(all("nav a").map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
const sections = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
function markSection() {
  const here = sections.filter((section) => section.getBoundingClientRect().top < innerHeight / 3).pop() || sections[0];
  for (const [id, link] of links) link.classList.toggle("here", id === here?.id);
}
addEventListener("scroll", markSection, { passive: true });
markSection();
