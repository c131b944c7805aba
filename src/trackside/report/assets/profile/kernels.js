// The kernels (without a device: operators) as a table to filter and sort, and their counters as a heat map.

const kernelById = new Map(list(record.kernels).map((kernel) => [kernel.id, kernel]));
const AT_ONCE = 60;
const rowOf = new Map();
let kernelBody = null;
let kernelFilter = null;
let kernelCount = null;
let sortedBy = { key: "total_ms", down: true };
let shownKernels = AT_ONCE;

const KERNEL_COLUMNS = [
  ["id", "id", null], ["name", thing, null], ["total_ms", "time", null], ["share", "share", "share"], ["calls", "runs", null],
  ["median_us", "median", null], ["bound", "bound by", "bound"], ["roof_share", "of roof", "roof"], ["line", "line", null],
];

function kernelLink(id) {
  if (!kernelById.has(id)) return code(short(id, 40));
  return el("a.kernel", {
    href: `#${encodeURIComponent(id)}`, title: short(kernelById.get(id).name, 300),
    onclick: (event) => { event.preventDefault(); showKernel(id); },
  }, short(id, 24));
}

function kernelsSection() {
  const title = onDevice ? "Kernels" : "Operators";
  if (!list(record.kernels).length) {
    return noStep ? null : section("kernels", title, null, missing(`No ${thing} ran in a traced step.`));
  }
  for (const kernel of record.kernels) {
    kernel.line = list(kernel.lines)[0] || "";
    kernel.sought = `${kernel.id} ${kernel.name} ${kernel.bound} ${list(kernel.lines).join(" ")}`.toLowerCase();
  }
  kernelFilter = el("input", {
    type: "search", id: "filter", placeholder: `Filter ${thing}s by name, line, id or bound`, "aria-label": `Filter ${thing}s`, autocomplete: "off", spellcheck: "false",
    oninput: () => { shownKernels = AT_ONCE; drawKernels(); },
  });
  kernelCount = el("p.count", { "aria-live": "polite", id: "kernel-count" });
  kernelBody = el("tbody", { id: "kernel-rows" });
  const heads = KERNEL_COLUMNS.map(([key, text, term]) => {
    const sorting = el("button.sort", { type: "button", "data-key": key, onclick: () => sortBy(key) }, text);
    const words = ["id", "name", "bound", "line"].includes(key);
    return el("th", { scope: "col", class: words ? `k-${key}` : `figure k-${key}`, "data-key": key }, sorting, term && help(term));
  });
  const node = section("kernels", title, null,
    el("div.filter", {}, kernelFilter, el("kbd", { title: "press / to filter" }, "/"), kernelCount),
    el("div.wide", {}, el("table.kernels", {}, el("thead", {}, el("tr", {}, heads)), kernelBody)),
    el("p.more", {}, el("button", { type: "button", id: "more-kernels", onclick: () => { shownKernels += 200; drawKernels(); } }, "Show 200 more")),
    record.kernels_left_out > 0 && el("p.note", {}, `${many(record.kernels_left_out, `smaller ${thing}`)} not listed.`));
  queueMicrotask(drawKernels);
  return node;
}

function sortBy(key) {
  const words = ["id", "name", "bound", "line"].includes(key);
  sortedBy = { key, down: sortedBy.key === key ? !sortedBy.down : !words };
  drawKernels();
}

const collator = new Intl.Collator("en", { numeric: true });

function soughtKernels() {
  const words = kernelFilter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = record.kernels.filter((kernel) => words.every((word) => kernel.sought.includes(word)));
  const { key, down } = sortedBy;
  const turn = down ? -1 : 1;
  return found.sort((a, b) => {
    const [x, y] = [a[key], b[key]];
    // What is unknown comes last, whichever way.
    if (x === null || x === undefined || y === null || y === undefined) return (x === null || x === undefined) - (y === null || y === undefined);
    return turn * (typeof x === "number" && typeof y === "number" ? x - y : collator.compare(x, y));
  });
}

function drawKernels() {
  const found = soughtKernels();
  rowOf.clear();
  kernelBody.replaceChildren(...found.slice(0, shownKernels).map(kernelRow));
  if (!found.length) kernelBody.append(el("tr", {}, el("td", { colspan: "9" }, missing(`No ${thing} matches.`))));
  const time = found.reduce((sum, kernel) => sum + kernel.total_ms, 0);
  kernelCount.textContent = `${grouped(found.length)} of ${many(record.kernels.length, thing)}, ${ms(time)}`;
  document.getElementById("more-kernels").hidden = found.length <= shownKernels;
  for (const head of document.querySelectorAll(".kernels th[data-key]")) {
    head.setAttribute("aria-sort", head.dataset.key !== sortedBy.key ? "none" : sortedBy.down ? "descending" : "ascending");
  }
}

const mostShare = once(() => list(record.kernels).reduce((most, kernel) => Math.max(most, kernel.share || 0), 1e-9));

function kernelRow(kernel) {
  const row = el("tr", { "data-kernel": kernel.id },
    el("td.k-id", {}, el("button.open", { type: "button", "aria-expanded": "false", "aria-label": `Details of ${short(kernel.id, 40)}`, onclick: () => toggleKernel(kernel, row) }, short(kernel.id, 12))),
    el("td.k-name", {}, el("code", { title: short(kernel.name, 400) }, short(kernel.short || kernel.name, 160))),
    el("td.figure", {}, ms(kernel.total_ms)),
    el("td.figure.measure", { "--wide": `${(100 * (kernel.share || 0)) / mostShare()}%`, "--c": colour(kernel.bound) }, percent(kernel.share)),
    el("td.figure", {}, count(kernel.calls)),
    el("td.figure", {}, ms(kernel.median_us / 1000)),
    el("td.k-bound", {}, swatch(kernel.bound), kernel.bound),
    el("td.figure", {}, number(kernel.roof_share) === null ? "–" : percent(kernel.roof_share)),
    el("td.k-line", {}, kernel.line ? placeOf(kernel.line, true) : "–"));
  rowOf.set(kernel.id, row);
  return row;
}

function toggleKernel(kernel, row) {
  const button = row.querySelector("button.open");
  const next = row.nextElementSibling;
  if (next && next.classList.contains("details")) {
    next.remove();
    button.setAttribute("aria-expanded", "false");
    return;
  }
  button.setAttribute("aria-expanded", "true");
  const seconds = kernel.total_ms / 1000;
  const facts = [
    ["name", el("code.whole", {}, kernel.name)],
    list(kernel.lines).length > 1 && ["lines", list(kernel.lines).slice(0, 30).map((place) => [placeOf(place), " "])],
    number(kernel.bytes) !== null && ["moves at least", `${size(kernel.bytes)} in a step, ${prefixed(kernel.bytes / seconds, "B/s")}`],
    number(kernel.flops) !== null && ["computes", `${prefixed(kernel.flops, "FLOP")} in a step, ${prefixed(kernel.flops / seconds, "FLOP/s")}`],
    ...Object.entries(table(kernel.launch)).map(([name, value]) => [short(name, 60), plainValue(value)]),
    ...Object.entries(table(kernel.counters)).map(([name, value]) => [short(name, 80), counterValue(name, value)]),
  ].filter(Boolean);
  row.after(el("tr.details", {}, el("td", { colspan: "9" }, el("dl.facts", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])))));
}

function showKernel(id) {
  if (!kernelById.has(id)) return false;
  if (!rowOf.has(id)) {
    kernelFilter.value = "";
    shownKernels = Math.max(AT_ONCE, soughtKernels().findIndex((kernel) => kernel.id === id) + 1);
    drawKernels();
  }
  const row = rowOf.get(id);
  const button = row.querySelector("button.open");
  if (button.getAttribute("aria-expanded") === "false") button.click();
  button.focus({ preventScroll: true });
  reveal(row);
  history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  return true;
}

function plainValue(value) {
  if (value === null || value === undefined) return "unknown";
  if (Array.isArray(value)) return short(value.map((part) => (typeof part === "object" ? JSON.stringify(part) : part)).join(" × "), 300);
  if (typeof value === "object") return short(JSON.stringify(value), 300);
  if (typeof value === "number") return count(value);
  return short(value, 300);
}

// ---- counters -------------------------------------------------------------------------------------------------

const isPercent = (name) => /pct|hit_rate/.test(name);

function counterValue(name, value) {
  if (number(value) === null) return "unknown";
  if (isPercent(name)) return `${three(value)} %`;
  return Math.abs(value) >= 1e4 ? prefixed(value, "").trim() : three(value);
}

const MOST_COUNTED = 40;

function countersSection() {
  if (!onDevice || !list(record.kernels).length) return null;
  const counted = record.kernels.filter((kernel) => Object.keys(table(kernel.counters)).length);
  if (!counted.length) {
    return section("counters", "Hardware counters", "counters", missing("None were read. ", code("trackside profile --counters …"),
      " runs the program once more and reads them for the kernels that matter."));
  }
  const shown = counted.slice(0, MOST_COUNTED);
  const names = [...new Set(shown.flatMap((kernel) => Object.keys(kernel.counters)))];
  const most = new Map(names.map((name) => [name, isPercent(name) ? 100 : Math.max(...shown.map((kernel) => Math.abs(number(kernel.counters[name]) || 0))) || 1]));
  return section("counters", "Hardware counters", "counters",
    el("p.note", {}, "The stronger the colour, the more: percentages against 100, other counters against the largest in their column."),
    el("div.wide", { tabindex: "0", role: "region", "aria-label": "Counters, scrolls sideways" }, el("table.heat", {},
      el("thead", {}, el("tr", {}, el("th", {}, thing), names.map((name) => el("th.counter", { title: short(name, 200) }, el("span", {}, shortCounter(name)))))),
      el("tbody", {}, shown.map((kernel) => el("tr", {}, el("th", { scope: "row" }, kernelLink(kernel.id), " ", el("span.name", {}, short(kernel.short || kernel.name, 40))),
        names.map((name) => {
          const value = number(kernel.counters[name]);
          return value === null ? el("td.figure", {}, "–")
            : el("td.figure.heat", { "--heat": String(Math.min(1, Math.abs(value) / most.get(name))) }, counterValue(name, value));
        })))))),
    counted.length > shown.length && el("p.note", {}, `${many(counted.length - shown.length, "more kernel")} with counters: open its row in the table of kernels.`));
}

// sm__warps_active.avg.pct_of_peak_sustained_active: what is counted, without how it is averaged.
const shortCounter = (name) => short(seen(name).replace(/\..*$/, "").replace(/__/g, " ").replace(/_/g, " "), 44);
