// What all parts of the page use: the record, elements, figures with units, explanations, copying, tooltips.

const record = JSON.parse(document.getElementById("record").textContent);
const onDevice = record.device !== "cpu";
// Then most of the page makes no sense, and is left out.
const noStep = record.step_ms === null || record.step_ms === undefined;
const list = (value) => (Array.isArray(value) ? value : []);
const table = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
// A figure of the whole record that many rows need: found when first asked for.
const once = (find) => {
  let found;
  return () => (found === undefined ? (found = find()) : found);
};
const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);

// ---- text -----------------------------------------------------------------------------------------------------

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// Controls and marks that turn the direction of writing are shown as what they are, and do nothing.
function seen(text) {
  return String(text).replace(UNSEEN, (sign) => {
    const code = sign.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

function short(text, most) {
  const plain = seen(text);
  if (plain.length <= most) return plain;
  // Not through the middle of a sign that takes two places.
  return `${plain.slice(0, most - 1).replace(/[\ud800-\udbff]$/, "")}…`;
}

// An element; strings become text nodes, so that nothing in the record is ever read as HTML.
function el(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(" ");
  fill(node, attributes, children);
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, attributes, children);
  return node;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : seen(value));
  }
  add(node, children);
}

function add(node, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(seen(child)));
  }
}

// ---- figures --------------------------------------------------------------------------------------------------

// Kept, since making a format takes longer than using it, and there are thousands of figures.
const formats = [];

function grouped(value, digits = 0) {
  const places = Math.min(digits, 12);
  formats[places] ||= new Intl.NumberFormat("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  return formats[places].format(value);
}

function three(value) {
  const size = Math.abs(value);
  return grouped(value, size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3);
}

// A figure and its unit stay on one line.
const NB = "\u00a0";
const unbroken = (text) => String(text).replace(/(\d) (?=(%|s|ms|µs|[kMGTP]?B|[TGP]?FLOP)(\W|$))/g, `$1${NB}`);

// As records/durations.py writes them, so that a page and a terminal say the same.
const UNITS = [["s", 1000], ["ms", 1], ["µs", 1e-3], ["ns", 1e-6]];
function ms(value) {
  if (number(value) === null) return "unknown";
  if (value === 0) return `0${NB}ms`;
  const size = Math.abs(value);
  const rounded = Number(size.toPrecision(3));
  const [unit, factor] = UNITS.find((one) => rounded >= one[1]) || UNITS[3];
  const figure = size / factor;
  const digits = figure >= 99.95 || unit === "ns" ? figure.toFixed(0) : String(Number(figure.toPrecision(3)));
  return `${value < 0 ? "-" : ""}${digits}${NB}${unit}`;
}

function percent(share) {
  if (number(share) === null) return "unknown";
  const value = Math.round(1000 * share) / 10;
  if (share > 0 && value < 0.1) return `<${NB}0.1${NB}%`;
  return `${grouped(value, value < 10 && value % 1 !== 0 ? 1 : 0)}${NB}%`;
}

function prefixed(value, unit) {
  for (const [size, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return `${three(value / size)}${NB}${prefix}${unit}`;
  }
  return `${three(value)}${NB}${unit}`;
}

const size = (bytes) => (number(bytes) === null ? "unknown" : prefixed(bytes, "B"));
const count = (value) => (number(value) === null ? "unknown" : grouped(value, value % 1 ? 1 : 0));
const many = (n, one, more) => `${grouped(n)} ${n === 1 ? one : more || `${one}s`}`;
const thing = onDevice ? "kernel" : "operator";

// ---- what bounds a kernel, and what a span is: one colour for each, and never the colour alone -------------------

const COLOURS = ["compute", "memory", "communication", "copy", "host", "launch", "latency", "idle", "unknown"];
const KINDS = {
  kernel: "compute", fill: "copy", memcpy: "copy", memset: "copy", op: "host", operator: "host", python: "host",
  runtime: "host", annotation: "unknown", wait: "idle", sync: "idle", loading: "idle", collective: "communication",
};

function colourOf(kind, device) {
  const word = String(kind).toLowerCase();
  if (COLOURS.includes(word)) return word;
  if (Object.hasOwn(KINDS, word)) return KINDS[word];
  return device === undefined ? "unknown" : device ? "compute" : "host";
}

const colour = (kind) => `var(--c-${colourOf(kind)})`;
const swatch = (kind) => el("span.swatch", { "--c": colour(kind), "aria-hidden": "true" });

function legend(kinds) {
  return el("p.legend", { "aria-label": "Colours" }, kinds.map((kind) => el("span", {}, swatch(kind), kind)));
}

// ---- explanations ---------------------------------------------------------------------------------------------

const TERMS = {
  step: "One turn of the program's main loop: for training, one batch forward, backward and the optimizer's update.",
  "device time": "Time that kernels ran on the accelerator, whatever the host did meanwhile.",
  compute: onDevice ? "Kernels ran on the device." : "The operators of torch computed.",
  communication: "Data moved between devices, and nothing was computed beside it.",
  copy: "Data moved between host and device, and nothing was computed beside it.",
  host: onDevice
    ? "The device had nothing to do while the host worked: Python, launching kernels, the framework."
    : "Python and the framework worked, outside the operators of torch.",
  idle: "Nothing was computed or moved: the program waited for its input.",
  exposed: "Not hidden behind something else: the step would be shorter without it.",
  "critical path": "The longest chain of things that wait for each other; only what lies on it makes the step longer.",
  spread: "How far steps differ: the middle half of them (interquartile range) over the median.",
  share: onDevice ? "Part of all device time of a step, forward and backward." : "Part of the step's time.",
  backward: "Time of the derivatives that this line caused; autograd runs them later, in loss.backward().",
  shared: "What is compiled does the work of several lines at once; its time was split between them, an estimate.",
  gain: "How much shorter the step would be: a low, a likely and a high estimate, from the critical path.",
  confidence: "How sure the rule is that this is the cause, by what it could see.",
  roofline: "The fastest that this machine was measured to go: left of the bend memory is the limit, right of it arithmetic.",
  roof: "How near it comes to what this machine was measured to do; 100 % is as fast as it can be.",
  bound: "What limits it: memory or compute speed, its own latency, launching, communication, copies or the host.",
  counters: "What the hardware itself counted while the kernel ran, in a run of its own.",
  window: "A part of the run. A runs untraced and gives the true time; L logs lines and nothing else, for their shares; T is traced; B is traced and logs lines, to tell whose each event is.",
  attributed: "How much of the time could be traced back to a line of the program.",
  together: "All findings applied at once, through the critical path. Not their sum: several may save the same time, and one alone may leave the step waiting for what another saves.",
  rank: "One of the processes that torchrun started; all train one model and meet in collectives.",
  "at work": "The step without the time in collectives beside which nothing was computed: what the rank does by itself.",
  waiting: "Time in such collectives beyond that of the rank that spends least there: the rank had come, another had not.",
  reserved: "What the allocator holds, used or not.",
};

const explanation = el("div.explanation", { role: "note", id: "explanation", hidden: true });
let explained = null;

function help(term) {
  const button = el("button.help", {
    type: "button", "aria-label": `What is “${term}”?`, "aria-expanded": "false", "aria-controls": "explanation",
    onclick: (event) => {
      event.stopPropagation();
      if (explained === button) return closeExplanation();
      closeExplanation();
      explained = button;
      button.setAttribute("aria-expanded", "true");
      explanation.replaceChildren(el("b", {}, term), ` ${TERMS[term]}`);
      explanation.hidden = false;
      button.after(explanation);
      // Beside the button, but never outside the page.
      const room = document.documentElement.clientWidth;
      const left = button.getBoundingClientRect().left;
      const over = left + explanation.offsetWidth + 12 - room;
      explanation.style.setProperty("--shift", `${over > 0 ? -Math.min(over, left - 8) : 0}px`);
    },
  }, "?");
  return el("span.helped", {}, button);
}

function closeExplanation() {
  if (!explained) return false;
  explained.setAttribute("aria-expanded", "false");
  explanation.hidden = true;
  explained = null;
  return true;
}

// ---- copying, saying, tooltips ----------------------------------------------------------------------------------

const said = el("div.unseen", { "aria-live": "polite", id: "said" });

function copyButton(text, what) {
  const button = el("button.copy", { type: "button", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copied(text);
    button.textContent = done ? "Copied" : "Select and copy";
    said.textContent = done ? `Copied ${what}.` : "This browser does not let the page copy.";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page from a file may not use the clipboard in some browsers; the old way works there.
    const area = el("textarea.unseen", { readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

const tooltip = el("div.tooltip", { role: "tooltip", hidden: true });

function showTooltip(x, y, ...content) {
  tooltip.replaceChildren();
  add(tooltip, content);
  tooltip.hidden = false;
  const wide = tooltip.offsetWidth;
  const high = tooltip.offsetHeight;
  const room = document.documentElement.clientWidth;
  tooltip.style.left = `${Math.max(4, Math.min(x + 14, room - wide - 8))}px`;
  tooltip.style.top = `${y + 18 + high > window.innerHeight ? Math.max(4, y - high - 12) : y + 18}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

// ---- sections -------------------------------------------------------------------------------------------------

const sections = [];

// A part of the page with its heading. `name` is its place in the contents, and its address.
function section(name, title, term, ...children) {
  const node = el("section", { id: name, "aria-labelledby": `${name}-title` },
    el("h2", { id: `${name}-title` }, title, term && help(term)), children);
  sections.push([name, title]);
  return node;
}

// A picture that is drawn anew for the width it has, so that its letters keep their size.
function drawn(draw) {
  const box = el("div.chart");
  let wide = 0;
  new ResizeObserver(() => {
    if (box.clientWidth === wide || !box.clientWidth) return;
    wide = box.clientWidth;
    box.replaceChildren(draw(wide));
  }).observe(box);
  return box;
}

const missing = (...text) => el("p.missing", {}, text);
const code = (text) => el("code", {}, text);
const places = new Map();

// A file and line that leads to the source below, if it is there.
function placeLink(file, line, bare) {
  const text = line === null || line === undefined ? String(file) : `${file}:${line}`;
  const told = bare ? tail(text.slice(text.lastIndexOf("/") + 1), 17) : text;
  if (!places.has(file)) return el("span.place", { title: short(text, 300) }, short(told, 120));
  return el("a.place", {
    href: `#${encodeURIComponent(text)}`, title: short(text, 300),
    onclick: (event) => { event.preventDefault(); showLine(file, line); },
  }, short(told, 120));
}

// Where there is little room what is left out stands before the line's number.
function placeOf(text, bare) {
  const cut = String(text).lastIndexOf(":");
  const line = Number(String(text).slice(cut + 1));
  return cut > 0 && Number.isInteger(line) ? placeLink(String(text).slice(0, cut), line, bare) : placeLink(text, null, bare);
}

function reveal(node) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  node.scrollIntoView({ block: "center", behavior: still ? "instant" : "auto" });
  node.classList.remove("arrived");
  void node.offsetWidth;
  node.classList.add("arrived");
}
