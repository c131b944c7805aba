// The timeline of one step: lanes on a canvas, since a step has tens of thousands of spans.

const ROW = 15;
const LANE_GAP = 22;
const DEEPEST = 5;
const timeline = { lanes: [], from: 0, to: 1, end: 1, canvas: null, overlay: null, high: 0, picked: null };

function timelineSection() {
  const lanes = list(record.timeline).filter((lane) => lane.start.length);
  if (!lanes.length) {
    return noStep ? null : section("timeline", "One step on the clock", null, missing("No timeline was kept: the trace had no spans of a whole step."));
  }
  let top = 26;
  for (const lane of lanes) {
    lane.depth = depths(lane);
    lane.rows = 1 + lane.depth.reduce((most, depth) => Math.max(most, depth), 0);
    lane.longest = lane.length.reduce((most, length) => Math.max(most, length), 0);
    lane.top = top + 16;
    top = lane.top + lane.rows * ROW + LANE_GAP - 16;
  }
  timeline.lanes = lanes;
  timeline.high = top + 4;
  timeline.end = Math.max(1, ...lanes.map((lane) => lane.start.reduce((most, start, i) => Math.max(most, start + lane.length[i]), 0)));
  timeline.to = timeline.end;
  const canvas = el("canvas.timeline", {
    tabindex: "0", id: "timeline-canvas", role: "application",
    "aria-label": `Timeline of one step, ${many(lanes.length, "lane")}. Left and right move, up and down zoom, Home shows all, comma and full stop pick spans.`,
    "--high": `${timeline.high}px`,
  });
  timeline.canvas = canvas;
  const spans = lanes.reduce((sum, lane) => sum + lane.start.length, 0);
  const out = lanes.reduce((sum, lane) => sum + (lane.left_out || 0), 0);
  const node = section("timeline", "One step on the clock", "exposed",
    el("div.controls", {},
      el("button", { type: "button", "aria-label": "Zoom in", onclick: () => zoomTimeline(0.5) }, "+"),
      el("button", { type: "button", "aria-label": "Zoom out", onclick: () => zoomTimeline(2) }, "−"),
      el("button", { type: "button", onclick: () => viewTimeline(0, timeline.end) }, "Whole step"),
      el("p.note", { id: "timeline-view" })),
    canvas, el("p.picked", { id: "timeline-picked", "aria-live": "polite" }),
    legend([...new Set(lanes.flatMap((lane) => [...new Set(lane.kind)].map((kind) => colourOf(lane.texts[kind], lane.device))))]),
    el("p.note", {}, `${many(spans, "span")}${out ? `; ${grouped(out)} too short to show` : ""}. ${lanes.some((lane) => lane.device) ? "Gaps in the lanes of the device are time in which it had nothing to do. " : ""}Click it, then the wheel zooms; drag moves. `,
      el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " move, ", el("kbd", {}, "↑"), " ", el("kbd", {}, "↓"), " zoom, ", el("kbd", {}, ","), " ", el("kbd", {}, "."), " pick the longest spans, ", el("kbd", {}, "Home"), " shows all."));
  canvas.addEventListener("keydown", timelineKey);
  canvas.addEventListener("wheel", timelineWheel, { passive: false });
  canvas.addEventListener("pointerdown", timelineDrag);
  canvas.addEventListener("mousemove", timelineHover);
  canvas.addEventListener("mouseleave", hideTooltip);
  queueMicrotask(() => new ResizeObserver(() => drawTimeline()).observe(canvas));
  return node;
}

// Spans of a thread contain each other; a contained one is drawn a row further down.
function depths(lane) {
  const open = [];
  return lane.start.map((start, i) => {
    while (open.length && open[open.length - 1] <= start + 1e-6) open.pop();
    open.push(start + lane.length[i]);
    return Math.min(DEEPEST, open.length) - 1;
  });
}

// CSS gives the colours, so that both themes and print have their own.
function resolved(names) {
  const probe = el("span");
  document.body.append(probe);
  const found = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function drawTimeline() {
  const { canvas, lanes, from, to } = timeline;
  if (!canvas || !canvas.isConnected) return;
  const ratio = window.devicePixelRatio || 1;
  const wide = canvas.clientWidth;
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(timeline.high * ratio);
  const ink = canvas.getContext("2d");
  ink.scale(ratio, ratio);
  const colours = resolved([...COLOURS.map((name) => `c-${name}`), "ink", "faint", "line", "on-colour"]);
  const font = getComputedStyle(document.body).fontFamily;
  const scale = wide / (to - from);
  ink.font = `11px ${font}`;
  ink.textBaseline = "middle";
  drawAxis(ink, colours, scale, wide);
  for (const lane of lanes) {
    ink.fillStyle = colours.ink;
    ink.fillText(short(lane.name, Math.max(10, Math.floor(wide / 8))), 2, lane.top - 8);
    drawLane(ink, lane, colours, scale, wide);
  }
  if (timeline.picked) {
    const { lane, i } = timeline.picked;
    ink.strokeStyle = colours.ink;
    ink.lineWidth = 2;
    ink.strokeRect((lane.start[i] - from) * scale, lane.top + lane.depth[i] * ROW, Math.max(2, lane.length[i] * scale), ROW - 2);
  }
  const view = document.getElementById("timeline-view");
  view.textContent = `${ms(from / 1000)} to ${ms(to / 1000)} of ${ms(timeline.end / 1000)}`;
}

function drawAxis(ink, colours, scale, wide) {
  const { from, to } = timeline;
  const rough = ((to - from) * 110) / wide;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const unit = step >= 100 ? [1000, "ms"] : [1, "µs"];
  const digits = Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9));
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const x = (at - from) * scale;
    ink.fillStyle = colours.line;
    ink.fillRect(x, 18, 1, timeline.high - 18);
    ink.fillStyle = colours.faint;
    const text = `${grouped(at / unit[0], digits)} ${unit[1]}`;
    if (x + ink.measureText(text).width < wide) ink.fillText(text, x + 3, 10);
  }
}

function drawLane(ink, lane, colours, scale, wide) {
  const { from, to } = timeline;
  const last = new Int32Array(DEEPEST).fill(-1);
  // The first that may reach into view: no span is longer than the longest.
  for (let i = firstAfter(lane.start, from - lane.longest); i < lane.start.length && lane.start[i] <= to; i += 1) {
    const end = lane.start[i] + lane.length[i];
    if (end < from) continue;
    const left = Math.max(0, (lane.start[i] - from) * scale);
    const right = Math.min(wide, (end - from) * scale);
    const row = lane.depth[i];
    // Several in one pixel are drawn once.
    if (right - left < 1 && Math.floor(right) === last[row]) continue;
    last[row] = Math.floor(right);
    const y = lane.top + row * ROW;
    ink.fillStyle = colours[`c-${colourOf(lane.texts[lane.kind[i]], lane.device)}`];
    ink.globalAlpha = 0.75;
    const width = Math.max(0.8, right - left - (right - left > 3 ? 0.6 : 0));
    ink.fillRect(left, y, width, ROW - 2);
    ink.globalAlpha = 1;
    if (width > 40) {
      ink.save();
      ink.beginPath();
      ink.rect(left, y, width - 3, ROW);
      ink.clip();
      ink.fillStyle = colours["on-colour"];
      ink.fillText(short(lane.texts[lane.text[i]], Math.ceil(width / 5)), left + 3, y + (ROW - 2) / 2 + 0.5);
      ink.restore();
    }
  }
}

function firstAfter(sorted, value) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function viewTimeline(from, to) {
  const length = Math.min(timeline.end, Math.max(1, to - from));
  const start = Math.max(0, Math.min(from, timeline.end - length));
  timeline.from = start;
  timeline.to = start + length;
  requestAnimationFrame(drawTimeline);
}

function zoomTimeline(factor, around = 0.5) {
  const { from, to } = timeline;
  const at = from + (to - from) * around;
  viewTimeline(at - (at - from) * factor, at + (to - at) * factor);
}

function timelineKey(event) {
  const { from, to } = timeline;
  const part = (to - from) / 8;
  const does = {
    ArrowLeft: () => viewTimeline(from - part, to - part), ArrowRight: () => viewTimeline(from + part, to + part),
    ArrowUp: () => zoomTimeline(0.7), ArrowDown: () => zoomTimeline(1 / 0.7), "+": () => zoomTimeline(0.7), "=": () => zoomTimeline(0.7),
    "-": () => zoomTimeline(1 / 0.7), Home: () => viewTimeline(0, timeline.end), ",": () => pickSpan(-1), ".": () => pickSpan(1),
    Escape: () => { timeline.picked = null; document.getElementById("timeline-picked").textContent = ""; viewTimeline(0, timeline.end); },
  }[event.key];
  if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  does();
}

function timelineWheel(event) {
  // Without a click first, the wheel goes on scrolling the page.
  if (document.activeElement !== timeline.canvas && !event.ctrlKey) return;
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const by = ((timeline.to - timeline.from) * event.deltaX) / timeline.canvas.clientWidth;
    viewTimeline(timeline.from + by, timeline.to + by);
  } else zoomTimeline(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 400))), event.offsetX / timeline.canvas.clientWidth);
}

function timelineDrag(event) {
  if (event.pointerType === "touch") return;
  const { from, to, canvas } = timeline;
  const scale = (to - from) / canvas.clientWidth;
  const move = (moved) => viewTimeline(from - (moved.clientX - event.clientX) * scale, to - (moved.clientX - event.clientX) * scale);
  canvas.setPointerCapture(event.pointerId);
  canvas.addEventListener("pointermove", move);
  const stop = () => canvas.removeEventListener("pointermove", move);
  canvas.addEventListener("pointerup", stop, { once: true });
  canvas.addEventListener("pointercancel", stop, { once: true });
}

function timelineHover(event) {
  const { lanes, from, to, canvas } = timeline;
  const at = from + (event.offsetX / canvas.clientWidth) * (to - from);
  const near = ((to - from) / canvas.clientWidth) * 2;
  const lane = lanes.find((candidate) => event.offsetY >= candidate.top && event.offsetY < candidate.top + candidate.rows * ROW);
  if (!lane) return hideTooltip();
  const row = Math.floor((event.offsetY - lane.top) / ROW);
  let found = -1;
  for (let i = firstAfter(lane.start, at - lane.longest - near); i < lane.start.length && lane.start[i] <= at + near; i += 1) {
    if (lane.depth[i] === row && lane.start[i] + lane.length[i] >= at - near) found = i;
  }
  if (found < 0) return hideTooltip();
  showTooltip(event.clientX, event.clientY, el("b", {}, short(lane.texts[lane.text[found]], 260)), el("br"), spanFigures(lane, found));
}

const spanFigures = (lane, i) => `${ms(lane.length[i] / 1000)}, ${short(lane.texts[lane.kind[i]], 40)}, starts at ${ms(lane.start[i] / 1000)}, ${short(lane.name, 60)}`;

// The longest spans one after another, for those who cannot hover.
function pickSpan(by) {
  if (!timeline.order) {
    timeline.order = timeline.lanes.flatMap((lane) => lane.length.map((length, i) => ({ lane, i, length }))).sort((a, b) => b.length - a.length).slice(0, 200);
    timeline.at = -1;
  }
  timeline.at = Math.max(0, Math.min(timeline.order.length - 1, timeline.at + by));
  const { lane, i } = timeline.order[timeline.at];
  timeline.picked = { lane, i };
  const pad = Math.max(lane.length[i] * 2, 50);
  viewTimeline(lane.start[i] - pad, lane.start[i] + lane.length[i] + pad);
  document.getElementById("timeline-picked").textContent = `${short(lane.texts[lane.text[i]], 200)}: ${spanFigures(lane, i)}`;
}
