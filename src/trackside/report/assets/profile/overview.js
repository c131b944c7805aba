// The first screen: what the step is spent on, and the findings.

function header() {
  const end = table(record.program);
  const facts = [
    record.device === "cpu" ? "CPU" : record.device,
    number(record.step_ms) !== null && [
      "step ", el("b", {}, ms(record.step_ms)),
      number(record.step_spread) !== null && [", spread ", percent(record.step_spread), help("spread")],
    ],
    record.steps > 0 && `${many(record.steps, "traced step")}, found by ${short(record.steps_found_by, 120)}`,
    number(record.attributed_share) !== null && [
      `${percent(record.attributed_share)} attributed to lines`, help("attributed"),
    ],
  ].filter(Boolean);
  return el("header.verdict", { id: "verdict" },
    el("p.command", {}, el("code", { title: short(list(record.command).join(" "), 600) }, short(list(record.command).join(" "), 300))),
    el("h1", { title: short(record.verdict, 600) }, unbroken(withoutFolders(record.verdict))),
    el("p.facts", {}, facts.map((fact) => el("span", {}, fact))),
    ending(end));
}

// The sentence is to be read at a glance, with its line and its gain; folders stand on the card.
function withoutFolders(text) {
  const first = list(record.findings)[0] || list(record.lines)[0] || {};
  const file = String(first.file || "");
  return file.includes("/") ? String(text).replaceAll(`${file}:`, `${file.slice(file.lastIndexOf("/") + 1)}:`) : text;
}

function ending(end) {
  const after = `after ${ms(1000 * (number(end.seconds) || 0))}`;
  let text = null;
  if (end.signal) text = `The program was ended by ${end.signal} ${after}.`;
  else if (number(end.exit_code) !== null && end.exit_code !== 0) text = `The program ended with exit code ${end.exit_code} ${after}.`;
  else if (record.status === "failed") text = "The profile was not completed.";
  else if (record.status === "running") text = "The program was still running when this page was written.";
  if (!text) return null;
  const rest = record.steps > 0 ? "The page shows the steps before that." : "No step was seen before that.";
  return el("p.alert", { role: "status" }, el("b", {}, text), " ", rest);
}

// ---- the step ---------------------------------------------------------------------------------------------------

const PARTS = ["compute", "communication", "copy", "host", "idle"];

function stepSection() {
  const parts = table(record.breakdown_ms);
  const total = PARTS.reduce((sum, part) => sum + (number(parts[part]) || 0), 0);
  if (!record.breakdown_ms || total <= 0) {
    return section("step", "Where a step’s time goes", "step",
      missing("No step was seen, so there is no time to divide. Why, and what to do, stands under what limits this report, below."), windows());
  }
  let before = 0;
  const rows = PARTS.map((part) => {
    const value = number(parts[part]) || 0;
    const row = el("tr", { class: value ? null : "zero" },
      el("th", { scope: "row" }, swatch(part), part, help(part)),
      el("td.track", { "--from": `${(100 * before) / total}%`, "--wide": `${(100 * value) / total}%`, "--c": colour(part) }, el("i")),
      el("td.figure", {}, ms(value)),
      el("td.figure", {}, percent(value / total)));
    before += value;
    return row;
  });
  return section("step", "Where a step’s time goes", "step",
    el("div.beside", {},
      el("table.waterfall", {},
        el("caption.unseen", {}, `One step of ${ms(total)}, every instant once`),
        el("tbody", {}, rows),
        el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "step"), el("td.axis", {}, el("span", {}, "0"), el("span", {}, ms(total))),
          el("td.figure", {}, ms(total)), el("td.figure", {}, "100 %")))),
      el("div.aside", {}, windows(), criticalPath())));
}

const WINDOWS = { A: "untraced", L: "with lines", T: "traced", B: "with both", K: "keeping memory" };

function windows() {
  const rows = list(record.windows);
  if (!rows.length) return null;
  return el("table.small", {},
    el("thead", {}, el("tr", {}, el("th", {}, "window", help("window")), el("th.figure", {}, "steps"), el("th.figure", {}, "median"),
      el("th.figure", {}, "spread"), el("th.figure", {}, "slower"))),
    el("tbody", {}, rows.map((row) => el("tr", {},
      el("th", { scope: "row" }, el("b", {}, row.window), ` ${WINDOWS[row.window] || ""}`),
      el("td.figure", {}, count(row.steps)), el("td.figure", {}, ms(row.step_ms)), el("td.figure", {}, percent(row.spread)),
      el("td.figure", {}, number(row.slowdown) === null ? "–" : `${grouped(row.slowdown, 2)}×`)))));
}

function criticalPath() {
  const parts = Object.entries(table(record.critical_path)).filter(([, share]) => number(share) > 0).sort((a, b) => b[1] - a[1]);
  if (!parts.length) return null;
  const colourFor = (name) => colour(name === "device" ? "compute" : name);
  return el("div.path", {},
    el("p.label", {}, "critical path", help("critical path")),
    el("div.stack", { "aria-hidden": "true" }, parts.map(([name, share]) => el("i", { "--wide": `${100 * share}%`, "--c": colourFor(name) }))),
    el("p.legend", {}, parts.slice(0, 6).map(([name, share]) =>
      el("span", {}, el("span.swatch", { "--c": colourFor(name), "aria-hidden": "true" }), `${short(name, 24)} ${percent(share)}`))));
}

// ---- findings -----------------------------------------------------------------------------------------------------

const cards = new Map();
const cardOf = new Map();

function findingsSection() {
  const found = list(record.findings).slice().sort((a, b) => b.gain.mid - a.gain.mid);
  if (!found.length) {
    if (noStep) return null;
    return section("findings", "What to change", null, missing("No rule found anything worth changing. That is a result: the step spends its time on what it has to do, as far as these rules can tell."));
  }
  const scale = Math.max(0.05, ...found.map((finding) => finding.gain.high), number(record.together && record.together.high) || 0);
  const sum = found.reduce((total, finding) => total + finding.gain.mid, 0);
  return section("findings", "What to change", "gain",
    found.length > 1 && together(scale, sum, found.length),
    el("ol.cards", {}, found.map((finding, place) => card(finding, place + 1, scale))));
}

function together(scale, sum, n) {
  const all = record.together;
  if (!all) return null;
  const step = number(record.step_ms);
  return el("div.together", {},
    el("p", {}, `All ${n} at once`, help("together"), ": ", el("b", {}, percent(all.mid)), ` of the step (${range(all)})`,
      step !== null && `, ${ms(step)} → about ${ms(step * (1 - all.mid))}`,
      Math.abs(sum - all.mid) > 0.005 && `. Their sum would be ${percent(sum)}: ${sum > all.mid ? "some save the same time" : "alone, each leaves the step waiting for what another saves"}`, "."),
    gainBar(all, scale));
}

const range = (gain) => `${percent(gain.low).replace(`${NB}%`, "")}–${percent(gain.high)}`;

function gainBar(gain, scale) {
  const at = (value) => `${Math.max(0, Math.min(100, (100 * value) / scale))}%`;
  return el("div.gain", { "aria-hidden": "true", title: `low ${percent(gain.low)}, likely ${percent(gain.mid)}, high ${percent(gain.high)} of the step` },
    el("i.span", { "--from": at(gain.low), "--to": at(gain.high) }), el("i.mid", { "--from": at(gain.mid) }));
}

function card(finding, rank, scale) {
  const step = number(record.step_ms);
  const body = el("div.card-body", {},
    list(finding.evidence).length > 0 && el("ul.evidence", {}, list(finding.evidence).map((text) => el("li", {}, linked(unbroken(text))))),
    finding.fix && el("div.fix", {}, el("p.label", {}, "Fix", copyButton(finding.fix, "the fix")), el("p", {}, finding.fix)),
    finding.diff && diff(finding.diff),
    finding.prove && el("div.fix", {}, el("p.label", {}, "Prove it", copyButton(finding.prove, "the command")), el("pre.shell", { tabindex: "0" }, finding.prove)),
    el("p.links", {},
      list(finding.kernels).length > 0 && el("span", {}, `${thing}s `, list(finding.kernels).slice(0, 12).map((id) => [kernelLink(id), " "])),
      finding.item && el("span", {}, "checklist ", code(short(finding.item, 80))),
      el("span", {}, "finding ", code(short(finding.id, 80)))));
  const open = rank === 1;
  const node = el("li.card", { "data-finding": finding.id },
    el("details", { open },
      el("summary", {},
        el("span.rank", { "aria-hidden": "true" }, String(rank)),
        el("span.title", {}, el("b", {}, finding.title),
          el("span.where", {}, finding.file !== null && finding.file !== undefined && placeLink(finding.file, finding.line),
            el("span.confidence", { "data-level": finding.confidence }, `${finding.confidence} confidence`))),
        el("span.saves", {}, "saves ", el("b", {}, percent(finding.gain.mid)), " of the step",
          gainBar(finding.gain, scale),
          el("small", {}, range(finding.gain), step !== null && `, about ${ms(step * finding.gain.mid)}`))),
      body));
  // A rule may find several things; its name alone leads to the first.
  if (!cards.has(finding.id)) cards.set(finding.id, finding);
  cardOf.set(finding, node);
  return node;
}

function showFinding(finding) {
  const node = cardOf.get(finding);
  node.querySelector("details").open = true;
  node.querySelector("summary").focus({ preventScroll: true });
  reveal(node);
}

function diff(text) {
  const lines = String(text).replace(/\n$/, "").split("\n");
  const kind = (line) => (/^(\+\+\+|---)/.test(line) ? "names" : line[0] === "+" ? "plus" : line[0] === "-" ? "minus" : line[0] === "@" ? "at" : null);
  return el("div.fix", {}, el("p.label", {}, "Change", copyButton(text, "the change")),
    el("pre.diff", { tabindex: "0" }, lines.map((line) => el("span", { class: kind(line) }, `${line}\n`))));
}

// Names of kernels in a sentence lead to their rows.
function linked(text) {
  const parts = seen(text).split(/\b(k\d+)\b/);
  return parts.map((part, place) => (place % 2 && kernelById.has(part) ? kernelLink(part) : part));
}
