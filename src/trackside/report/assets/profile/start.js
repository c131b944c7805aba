// Puts the page together: contents, theme, keys, addresses.

function start() {
  readPlaces();
  const main = el("main", { id: "main" },
    header(), stepSection(), ranksSection(), findingsSection(), sourceSection(), icicleSection(), rooflineSection(), kernelsSection(), countersSection(),
    timelineSection(), memorySection(), telemetrySection(), trustSection(), environmentSection(),
    el("footer", {}, `trackside ${short(record.version, 40)}, ${short(record.started, 60)}. This page needs no network and sends nothing.`));
  document.body.append(el("a.skip", { href: "#main" }, "Skip to the verdict"), bar(), main, tooltip, said, helpDialog);
  document.addEventListener("keydown", pageKey);
  document.addEventListener("click", (event) => { if (!explanation.contains(event.target)) closeExplanation(); });
  window.addEventListener("scroll", hideTooltip, { passive: true });
  window.addEventListener("hashchange", follow);
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((node) => { node.open = true; }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTimeline);
  follow();
}

const CONTENTS = {
  step: "Step", ranks: "Ranks", findings: "Findings", source: "Source", icicle: "Icicle", roofline: "Roofline", kernels: onDevice ? "Kernels" : "Operators", counters: "Counters",
  timeline: "Timeline", memory: "Memory", telemetry: "Machine", trust: "Limits", environment: "Environment",
};

function bar() {
  return el("nav.bar", { "aria-label": "Contents" },
    el("a.brand", { href: "#verdict" }, "trackside"),
    el("div.contents", {}, sections.map(([name]) => el("a", { href: `#${name}` }, CONTENTS[name]))),
    el("div.tools", {},
      el("button", { type: "button", id: "theme", onclick: turnTheme }, "Theme"),
      el("button", { type: "button", id: "help", "aria-label": "Help and keys", onclick: openHelp }, "?")));
}

// ---- theme: the system's, until the reader chooses -----------------------------------------------------------------

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  drawTimeline();
}

function turnTheme() {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const next = dark ? "light" : "dark";
  theme(next);
  said.textContent = `${next} theme`;
  try {
    localStorage.setItem("trackside-theme", next);
  } catch {
    // A page from a file may have no storage; the choice then holds for as long as it is open.
  }
}

function rememberedTheme() {
  try {
    const kept = localStorage.getItem("trackside-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // The same.
  }
}

// ---- keys --------------------------------------------------------------------------------------------------------

const KEYS = [
  ["/", `filter ${thing}s`], ["?", "this help"], ["Esc", "close, zoom out, or leave the filter"], ["j  k", "next and previous finding"], ["t", "light or dark"],
  ["← →  ↑ ↓", "in the timeline: move and zoom; in the icicle: go from cell to cell"], [",  .", "in the timeline: pick the longest spans"], ["Home", "in the timeline: the whole step"],
];

const DEVICE_TERMS = ["device time", "counters", "copy", "reserved"];

const helpDialog = el("dialog", { id: "help-dialog", "aria-labelledby": "help-title" },
  el("form", { method: "dialog" }, el("button.close", { "aria-label": "Close" }, "×")),
  el("h2", { id: "help-title" }, "How to read this page"),
  el("p", {}, "From the top: what the step is spent on, what to change first and what that would save, and below it everything that this rests on. Each finding has an id, and each ",
    thing, " a name such as k1: add it to the page’s address after # to open it."),
  el("h3", {}, "Keys"),
  el("dl.facts", {}, KEYS.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
  el("h3", {}, "Words"),
  el("dl.facts", {}, Object.entries(TERMS).filter(([term]) => onDevice || !DEVICE_TERMS.includes(term)).map(([term, text]) => [el("dt", {}, term), el("dd", {}, text)])));

function openHelp() {
  helpDialog.showModal();
}

function pageKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || helpDialog.open) return;
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "Escape") {
    hideTooltip();
    const button = explained;
    if (closeExplanation()) button.focus();
    else if (typing && kernelFilter) {
      kernelFilter.value = "";
      drawKernels();
      kernelFilter.blur();
    }
    return;
  }
  if (typing) return;
  const does = { "/": filterKernels, "?": openHelp, t: turnTheme, j: () => turnFinding(1), k: () => turnFinding(-1) }[event.key];
  if (!does) return;
  event.preventDefault();
  does();
}

function filterKernels() {
  if (!kernelFilter) return;
  kernelFilter.focus({ preventScroll: true });
  kernelFilter.scrollIntoView({ block: "center" });
}

function turnFinding(by) {
  const all = [...document.querySelectorAll(".card summary")];
  if (!all.length) return;
  const at = all.indexOf(document.activeElement);
  const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
  next.focus({ preventScroll: true });
  next.parentNode.open = true;
  next.scrollIntoView({ block: "nearest" });
}

// ---- addresses: #k3, #item-sync, #train.py:31 ------------------------------------------------------------------------

function follow() {
  let wanted = "";
  try {
    wanted = decodeURIComponent(location.hash.slice(1));
  } catch {
    return;
  }
  if (!wanted || sections.some(([name]) => name === wanted)) return;
  if (kernelById.has(wanted)) queueMicrotask(() => showKernel(wanted));
  else if (cards.has(wanted)) showFinding(cards.get(wanted));
  else {
    const cut = wanted.lastIndexOf(":");
    showLine(wanted.slice(0, cut), Number(wanted.slice(cut + 1)));
  }
}

rememberedTheme();
start();
