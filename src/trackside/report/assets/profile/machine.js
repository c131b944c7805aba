// Memory, what the machine did meanwhile, where this was measured, and what limits the report.

// ---- memory -----------------------------------------------------------------------------------------------------

function memorySection() {
  const parts = list(record.memory);
  if (!parts.length) {
    if (noStep || !onDevice) return null;
    return section("memory", "Memory", null, missing("Memory was not recorded in this run."));
  }
  return section("memory", "Memory", null, parts.map(memoryOf),
    el("p.note", {}, "Of the steps with lines. A line holds what its calls have taken and not given back, with what their derivatives have."));
}

const MEMORY_OF = { cpu: "Tensors of the host", process: "The whole process" };

function memoryOf(part) {
  const series = list(part.series).filter(([at, bytes]) => number(at) !== null && number(bytes) !== null);
  const lines = list(part.lines);
  const rows = [...lines.map((row) => [row.bytes, placeLink(row.file, row.line), row.text, row.backward_bytes]),
    ...list(part.held).map((row) => [row.bytes, short(row.what, 80), "", 0])].sort((a, b) => b[0] - a[0]);
  const backward = lines.some((row) => row.backward_bytes > 0);
  const total = number(part.total_bytes);
  const reserved = number(part.reserved_bytes);
  const segments = number(part.new_segments);
  return el("div.memory", {},
    el("p", {}, el("b", {}, Object.hasOwn(MEMORY_OF, part.device) ? MEMORY_OF[part.device] : short(part.device, 80)), ": peak ", el("b", {}, size(part.peak_bytes)),
      total !== null && `, ${percent(part.peak_bytes / total)} of ${size(total)}`,
      reserved !== null && [`, ${size(reserved)} reserved`, help("reserved"), reserved > part.peak_bytes && ` and ${percent(1 - part.peak_bytes / reserved)} of that not in use`],
      "."),
    part.growth_bytes > 0 && el("p", {}, "Every step leaves ", el("b", {}, `${size(part.growth_bytes)} more`), " than the one before",
      list(part.growth_lines).length > 0 && [", taken by ", list(part.growth_lines).slice(0, 3).map((row, i) => [i > 0 && ", ", placeLink(row.file, row.line), ` (${size(row.bytes)})`])],
      ": something keeps it."),
    segments > 0 && el("p", {}, `The allocator asked the device for more memory ${many(segments, "time")} in these steps, ${size(part.new_segment_bytes)} together; each time the device may stand still.`),
    series.length > 1 && drawn((wide) => areaChart(wide, series, part.peak_bytes, list(part.step_ends_ms))),
    rows.length > 0 && el("div.wide", {}, el("table.small.held", {},
      el("caption", {}, "Held at the peak"),
      el("thead", {}, el("tr", {}, el("th", {}, "line"), el("th.text.wider", {}, ""), backward && el("th.figure.wider", {}, "backward", help("backward")), el("th.figure", {}, "held"), el("th.figure", {}, "share"))),
      el("tbody", {}, rows.slice(0, 12).map(([bytes, place, text, back]) => el("tr", {}, el("th", { scope: "row" }, place),
        el("td.text.wider", {}, text && code(short(text.trim(), 120))), backward && el("td.figure.wider", {}, back > 0 ? size(back) : ""),
        el("td.figure", {}, size(bytes)), el("td.figure", {}, percent(bytes / part.peak_bytes))))))),
    rows.length > 12 && el("p.note", {}, `And ${many(rows.length - 12, "line")} with less.`));
}

// The highest of each stretch: more points than pixels show nothing more.
function thinned(series, most) {
  if (series.length <= most) return series;
  const kept = [];
  for (let i = 0; i < most; i += 1) {
    const part = series.slice(Math.floor((i * series.length) / most), Math.floor(((i + 1) * series.length) / most));
    kept.push(part.reduce((best, point) => (point[1] > best[1] ? point : best)));
  }
  return kept;
}

function areaChart(W, all, peak, steps) {
  const series = thinned(all, W);
  const [H, left, bottom, top] = [190, 66, 24, 12];
  const last = series[series.length - 1][0] || 1;
  const most = series.reduce((highest, [, bytes]) => Math.max(highest, bytes), peak || 0) * 1.08 || 1;
  const X = (at) => left + (at / last) * (W - left - 8);
  const Y = (bytes) => H - bottom - (bytes / most) * (H - bottom - top);
  // Memory stays as it is until something is taken or given back.
  const path = series.map(([at, bytes], i) => `${i ? "H" : "M"}${X(at).toFixed(1)}${i ? "V" : " "}${Y(bytes).toFixed(1)}`).join("");
  const highest = series.reduce((best, point) => (point[1] > best[1] ? point : best));
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => part * last);
  return svg("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": `Memory over ${ms(last)}, peak ${size(peak)} at ${ms(highest[0])}` },
    [0, 0.5, 1].map((part) => [
      svg("line", { class: "grid", x1: left, x2: W - 8, y1: Y(part * most), y2: Y(part * most) }),
      svg("text", { class: "tick", x: left - 6, y: Y(part * most) + 4, "text-anchor": "end" }, size(part * most))]),
    ticks.map((at, i) => svg("text", { class: "tick", x: X(at), y: H - 6, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, ms(at))),
    steps.filter((at) => number(at) !== null && at > 0 && at < last).slice(0, 60).map((at) => svg("line", { class: "stepend", x1: X(at), x2: X(at), y1: top, y2: H - bottom })),
    svg("path", { class: "area", d: `${path}L${X(last)} ${Y(0)}L${X(series[0][0])} ${Y(0)}Z` }),
    svg("path", { class: "curve", d: path }),
    svg("circle", { class: "peak", cx: X(highest[0]), cy: Y(highest[1]), r: 4 }),
    svg("text", { class: "roofname", x: Math.min(X(highest[0]) + 8, W - 120), y: Y(highest[1]) - 2 }, `peak ${size(highest[1])}`));
}

// ---- telemetry ------------------------------------------------------------------------------------------------

function telemetrySection() {
  const told = table(record.telemetry);
  const series = Object.entries(table(told.series)).filter(([, values]) => values && typeof values === "object");
  if (!series.length) return null;
  // One that has nothing to do is not held down.
  const reasons = Object.entries(table(told.reasons)).filter(([name, share]) => number(share) > 0 && name !== "GpuIdle");
  const others = list(told.foreign_processes);
  return section("telemetry", "What the machine did meanwhile", null,
    el("div.wide", {}, el("table.small.telemetry", {},
      el("thead", {}, el("tr", {}, el("th", {}, ""), el("th", {}, `over ${three(number(told.seconds) || 0)} s`), el("th.figure", {}, "least"), el("th.figure", {}, "median"), el("th.figure", {}, "most"))),
      el("tbody", {}, series.slice(0, 40).map(([name, values]) => el("tr", {},
        el("th", { scope: "row", title: short(name, 200) }, short(telemetryName(name), 40)),
        el("td", {}, sparkline(list(values.points))),
        ["min", "median", "max"].map((key) => el("td.figure", {}, telemetryValue(values[key], values.unit)))))))),
    reasons.length > 0 && el("p.note", {}, "Clocks were held down: ", reasons.map(([name, share]) => `${short(name, 60)} in ${percent(share)} of the samples`).join(", "), "."),
    others.length > 0 && el("p.note", {}, `Other programs used the device: ${others.slice(0, 8).map((other) => short(table(other).name, 60)).join(", ")}.`));
}

const telemetryName = (name) => seen(name).replace(/^gpu\./, "").replace(/_mhz$/, " clock").replace(/_(w|c|pct)$/, "").replace(/[._]/g, " ");

function telemetryValue(value, unit) {
  if (number(value) === null) return "–";
  if (!unit || unit === "1" || unit === "share") return percent(value);
  if (unit === "bytes" || unit === "bytes/s") return prefixed(value, unit.replace("bytes", "B"));
  return `${three(value)} ${short(unit, 12)}`;
}

function sparkline(points) {
  const known = points.filter((value) => number(value) !== null);
  if (known.length < 2) return "";
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const Y = (value) => 18 - (high > low ? (value - low) / (high - low) : 0.5) * 16;
  return svg("svg", { viewBox: "0 0 160 20", class: "spark", "aria-hidden": "true", preserveAspectRatio: "none" },
    svg("path", { class: "curve", d: known.map((value, i) => `${i ? "L" : "M"}${((160 * i) / (known.length - 1)).toFixed(1)} ${Y(value).toFixed(1)}`).join("") }));
}

// ---- trust and environment ----------------------------------------------------------------------------------------

function trustSection() {
  const limits = list(record.trust);
  const unknown = list(table(record.telemetry).unknown).map((row) => ({ what: table(row).what, effect: table(row).why, remedy: table(row).remedy }));
  const notes = list(record.page_notes);
  const all = [...limits, ...unknown].filter((row) => row.what);
  if (noStep && !all.length && !notes.length) return null;
  return section("trust", "What limits this report", null,
    !all.length && !notes.length && missing("Nothing that was looked for: steps were steady, the trace was whole, and what was asked could be read."),
    all.length > 0 && el("ul.limits", {}, all.map((row) => el("li", {}, el("b", {}, row.what), row.effect && el("p", {}, row.effect),
      row.remedy && el("p.remedy", {}, "To mend it: ", commandLike(row.remedy) ? [code(row.remedy), copyButton(row.remedy, "the command")] : row.remedy)))),
    notes.map((note) => el("p.note", {}, `${note} The record has all of it: `, code(`trackside runs show ${record.run_id ? short(record.run_id, 60) : ""} --json`))));
}

const commandLike = (text) => /^(trackside|pip|python|sudo|nvidia-smi|export) /.test(text) && text.length < 400;

function environmentSection() {
  const rows = [
    ["command", list(record.command).join(" ")], ["run", record.run_id], ["device", record.device === "cpu" ? "CPU" : record.device], ["started", record.started],
    ["took", number(record.seconds) === null ? null : ms(1000 * record.seconds)], ["trackside", record.version], ["steps found by", record.steps_found_by],
    ...flat(table(record.environment)),
    ...flat(table(record.options)).map(([name, value]) => [`option ${name}`, value]),
    ...Object.entries(table(record.ceilings)).filter(([, value]) => number(value) !== null).map(([name, value]) =>
      [`measured ${ceilingName(name)}`, unitOf(name) === "µs" ? `${three(value)} µs` : prefixed(value, unitOf(name))]),
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return section("environment", "Where this was measured", null,
    el("dl.facts.environment", {}, rows.slice(0, 200).map(([name, value]) => [el("dt", {}, short(name, 80)), el("dd", {}, short(value, 400))])));
}

function flat(values, before = "") {
  return Object.entries(values).flatMap(([name, value]) => {
    const path = before ? `${before} ${name}` : name;
    return value && typeof value === "object" && !Array.isArray(value) && path.length < 200 ? flat(value, path) : [path.endsWith("_bytes") && number(value) !== null ? [path.slice(0, -6), prefixed(value, "B")] : [path, plainValue(value)]];
  });
}
