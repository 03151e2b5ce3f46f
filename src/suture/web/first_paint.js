// Set before the first paint: the reader's choice, else the system's.
document.documentElement.dataset.theme = (() => { try { return localStorage.getItem("suture-theme"); } catch { return null; } })()
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
