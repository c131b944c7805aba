// The program's source with the time of each line. Files are long, so that only stretches around hot lines are shown.

const HOT = 0.01;
const AROUND = 3;
const ALWAYS = 10; // lines of a file that are in sight, however little time they take
const linesOf = new Map();
const fileButtons = new Map();
let shownFile = null;
let sourceTable = null;

function readPlaces() {
  for (const file of Object.keys(table(record.sources))) places.set(file, table(record.sources)[file]);
  for (const line of list(record.lines)) {
    if (!linesOf.has(line.file)) linesOf.set(line.file, new Map());
    linesOf.get(line.file).set(line.line, line);
    // A file whose text is not there still has the lines that took time.
    if (!places.has(line.file)) places.set(line.file, []);
  }
  for (const [file, stretches] of places) {
    if (stretches.length) continue;
    const known = [...(linesOf.get(file) || new Map()).values()].sort((a, b) => a.line - b.line);
    places.set(file, known.map((line) => [line.line, [line.text]]));
  }
}

function sourceSection() {
  const files = [...places.keys()].map((file) => [file, shareOf(file)]).sort((a, b) => b[1] - a[1]);
  if (!files.length) {
    if (noStep) return null;
    return section("source", "The source, line by line", "share", missing("No time could be traced back to a line of the program: see what limits this report, below."));
  }
  sourceTable = el("div.source", { id: "source-table" });
  const buttons = files.map(([file, share]) => {
    const button = el("button.file", { type: "button", "aria-pressed": "false", title: short(file, 400), onclick: () => showFile(file) },
      el("span.name", {}, tail(file, 48)), el("span.figure", {}, percent(share)));
    fileButtons.set(file, button);
    return button;
  });
  const node = section("source", "The source, line by line", "share",
    el("div.files", { role: "group", "aria-label": "Files" }, buttons), sourceTable, buckets());
  showFile(files[0][0]);
  return node;
}

const tail = (text, most) => (seen(text).length <= most ? seen(text) : `…${seen(text).slice(1 - most)}`);
const shareOf = (file) => [...(linesOf.get(file) || new Map()).values()].reduce((sum, line) => sum + (number(line.share) || 0), 0);

// Places of findings count as hot, so that a card's line is always in sight.
function hotLines(file) {
  const hot = new Set();
  const lines = [...(linesOf.get(file) || new Map()).values()].sort((a, b) => b.share - a.share);
  lines.forEach((line, place) => { if (line.share >= HOT || place < ALWAYS) hot.add(line.line); });
  for (const finding of list(record.findings)) if (finding.file === file && finding.line) hot.add(finding.line);
  return hot;
}

function showFile(file) {
  shownFile = file;
  for (const [name, button] of fileButtons) button.setAttribute("aria-pressed", String(name === file));
  const hot = hotLines(file);
  const rows = [];
  for (const [first, texts] of places.get(file)) texts.forEach((text, i) => rows.push([first + i, text]));
  const near = new Set();
  for (const line of hot) for (let i = line - AROUND; i <= line + AROUND; i += 1) near.add(i);
  const body = el("tbody");
  // A short file is shown whole: folding it would hide more than it saves.
  const whole = rows.length <= 40;
  let folded = [];
  const fold = () => {
    if (folded.length > 4) body.append(foldRow(file, folded));
    else folded.forEach(([line, text]) => body.append(sourceRow(file, line, text)));
    folded = [];
  };
  let last = null;
  for (const [line, text] of rows) {
    if (last !== null && line !== last + 1) {
      fold();
      body.append(el("tr.gap", {}, el("td", { colspan: "6" }, `${many(line - last - 1, "line")} not in this page`)));
    }
    last = line;
    if (whole || near.has(line)) {
      fold();
      body.append(sourceRow(file, line, text));
    } else folded.push([line, text]);
  }
  fold();
  const both = onDevice || anyBackward();
  sourceTable.replaceChildren(
    el("table.code", { class: onDevice ? "code" : both ? "code cpu" : "code cpu forward" },
      el("caption.unseen", {}, `Lines of ${short(file, 200)} with their time in a step`),
      el("thead", {}, el("tr", {}, el("th.figure", {}, "line"),
        onDevice && el("th.figure.wider", {}, "device, ms", help("device time")),
        both && el("th.figure.wider", {}, "backward, ms", help("backward")),
        el("th.figure.wider", {}, "host, ms"), el("th.figure", {}, "share"), el("th.text", {}, short(file, 120)))),
      body));
}

const anyBackward = once(() => list(record.lines).some((line) => line.backward_ms > 0));

function foldRow(file, folded) {
  const row = el("tr.fold", {}, el("td", { colspan: "6" }, el("button", {
    type: "button",
    onclick: () => row.replaceWith(...folded.map(([line, text]) => sourceRow(file, line, text))),
  }, `Show lines ${grouped(folded[0][0])}–${grouped(folded[folded.length - 1][0])}`)));
  row.folded = folded;
  return row;
}

const largest = once(() => list(record.lines).reduce((most, line) => Math.max(most, line.device_ms, line.backward_ms, line.cpu_ms), 1e-9));

function sourceRow(file, line, text) {
  const time = (linesOf.get(file) || new Map()).get(line);
  const bar = (kind, value) => el("td.figure.wider", value > 0 ? { class: "figure wider measure", "--wide": `${(100 * value) / largest()}%`, "--c": `var(--c-${kind})` } : {},
    value > 0 ? (value < 0.005 ? "< 0.01" : grouped(value, 2)) : "");
  const both = onDevice || anyBackward();
  const row = el("tr", {
    class: time && time.share >= 0.05 ? "hot" : time && time.share >= HOT ? "warm" : null,
    title: time ? `${short(time.function, 120)}, ${count(time.calls)} × in a step` : null,
  },
  el("td.number", {}, String(line)),
  onDevice && bar("compute", time ? time.device_ms : 0),
  both && bar("memory", time ? time.backward_ms : 0),
  bar("host", time ? time.cpu_ms : 0),
  el("td.figure.share", {}, time && time.share > 0 ? percent(time.share) : ""),
  el("td.text", { "data-figures": time ? figures(time) : null }, el("code", {}, text), (findingsAt().get(`${file}:${line}`) || []).map(findingTag), time && time.shared && el("span.tag", {}, "shared", help("shared"))));
  row.line = line;
  return row;
}

const findingsAt = once(() => {
  const found = new Map();
  for (const finding of list(record.findings)) {
    const place = `${finding.file}:${finding.line}`;
    found.set(place, [...(found.get(place) || []), finding]);
  }
  return found;
});

function findingTag(finding) {
  return el("a.tag", {
    href: `#${encodeURIComponent(finding.id)}`, title: short(finding.title, 200),
    onclick: (event) => { event.preventDefault(); showFinding(finding); },
  }, `saves ${percent(finding.gain.mid)}`);
}

// For narrow screens, which have no room for the columns.
function figures(time) {
  const parts = [["device", onDevice ? time.device_ms : 0], ["backward", time.backward_ms], ["host", time.cpu_ms]];
  return parts.filter(([, value]) => value > 0).map(([name, value]) => `${name} ${ms(value)}`).join(", ");
}

// Select a file, unfold the line and go there.
function showLine(file, line) {
  if (!places.has(file)) return false;
  if (shownFile !== file) showFile(file);
  for (const row of sourceTable.querySelectorAll("tr.fold")) {
    if (row.folded.some(([folded]) => folded === line)) row.querySelector("button").click();
  }
  const row = [...sourceTable.querySelectorAll("tbody tr")].find((candidate) => candidate.line === line);
  const target = row || sourceTable;
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
  reveal(target);
  history.replaceState(null, "", `#${encodeURIComponent(line ? `${file}:${line}` : file)}`);
  return true;
}

const BUCKETS = {
  optimizer: "the optimizer’s update", loading: "fetching batches", copies: "copies", communication: "communication",
  autograd: "autograd’s own work", unattributed: "could not be traced back to a line",
};

function buckets() {
  const rows = list(record.buckets).filter((bucket) => bucket.device_ms > 0 || bucket.cpu_ms > 0);
  if (!rows.length) return null;
  return el("table.small.buckets", {},
    el("caption", {}, "Time that belongs to no line"),
    el("thead", {}, el("tr", {}, el("th", {}, ""), onDevice && el("th.figure", {}, "device"), el("th.figure", {}, "host"), el("th.figure", {}, "share"))),
    el("tbody", {}, rows.map((bucket) => el("tr", {}, el("th", { scope: "row" }, BUCKETS[bucket.name] || bucket.name),
      onDevice && el("td.figure", {}, ms(bucket.device_ms)), el("td.figure", {}, ms(bucket.cpu_ms)), el("td.figure", {}, percent(bucket.share))))));
}
