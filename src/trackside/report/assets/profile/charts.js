// Two pictures of all kernels: the icicle (which line, which kernel) and the roofline (how near to the limit).

// ---- icicle -----------------------------------------------------------------------------------------------------

const ICICLE_LEAST = 3; // px; narrower cells are drawn as one
let icicleRoot = null;
let icicleBox = null;
let icicleBy = "lines";

function icicleSection() {
  const byLines = list(record.kernels).length > 0;
  const byModules = list(record.modules).length > 0;
  if (!byLines && !byModules) return null;
  icicleBy = byLines ? "lines" : "modules";
  icicleBox = el("div.icicle", { role: "group", "aria-label": "Icicle: arrow keys move, Enter zooms in, Escape zooms out" });
  const several = list(record.kernels).filter((kernel) => list(kernel.lines).length > 1).length;
  const colours = legend(COLOURS.filter((name) => list(record.kernels).some((kernel) => colourOf(kernel.bound) === name)));
  const note = el("p.note", {}, `Width is ${onDevice ? "device time" : "time"} in a step, colour is what bounds it. `,
    several > 0 && `${many(several, thing)} ${several === 1 ? "runs" : "run"} for several lines and ${several === 1 ? "stands" : "stand"} under the one that takes most of it.`);
  const buttons = [["lines", `by line and ${thing}`], ["modules", "by module"]].filter(([key]) => (key === "lines" ? byLines : byModules))
    .map(([key, text]) => el("button", { type: "button", "aria-pressed": String(key === icicleBy), onclick: (event) => {
      icicleBy = key;
      for (const button of event.target.parentNode.children) button.setAttribute("aria-pressed", String(button === event.target));
      colours.hidden = note.hidden = key === "modules";
      zoomIcicle(icicleBy === "lines" ? lineTree() : moduleTree());
    } }, text));
  const node = section("icicle", onDevice ? "Which line starts which kernel" : "Which line calls which operator", onDevice ? "device time" : null,
    el("div.controls", {}, buttons.length > 1 && el("div.choice", { role: "group", "aria-label": "Icicle" }, buttons),
      el("button", { type: "button", id: "icicle-out", hidden: true, onclick: () => zoomIcicle(icicleRoot.whole) }, "Whole step")),
    icicleBox, colours, note);
  queueMicrotask(() => {
    zoomIcicle(icicleBy === "lines" ? lineTree() : moduleTree());
    new ResizeObserver(() => drawIcicle()).observe(icicleBox);
  });
  return node;
}

function branch(name, more) {
  return { name, ms: 0, children: new Map(), ...more };
}

function lineTree() {
  const root = branch("all of the step’s kernels");
  if (!onDevice) root.name = "all of the step’s operators";
  for (const kernel of list(record.kernels)) {
    const place = list(kernel.lines)[0];
    const cut = place ? place.lastIndexOf(":") : -1;
    const file = place ? (cut > 0 ? place.slice(0, cut) : place) : "no line of the program";
    const path = place ? [[file, { file }], [place, { file, line: Number(place.slice(cut + 1)) }]] : [[file, {}]];
    grow(root, [...path, [kernel.id, { kernel }]], kernel.total_ms);
  }
  if (onDevice) root.name = "device time";
  return finished(root);
}

function grow(root, path, time) {
  let node = root;
  node.ms += time;
  for (const [key, more] of path) {
    if (!node.children.has(key)) node.children.set(key, branch(key, more));
    node = node.children.get(key);
    node.ms += time;
  }
}

function moduleTree() {
  const root = branch("model");
  for (const module of list(record.modules)) {
    let node = root;
    for (const part of module.path ? module.path.split(".") : []) {
      if (!node.children.has(part)) node.children.set(part, branch(part, {}));
      node = node.children.get(part);
    }
    node.module = module;
    node.own = (number(module.device_ms) || 0) + (number(module.backward_ms) || 0) || number(module.cpu_ms) || 0;
  }
  // A parent's time may or may not include its children's.
  const settle = (node) => {
    const inner = [...node.children.values()].reduce((sum, child) => sum + settle(child), 0);
    node.ms = Math.max(node.own || 0, inner);
    return node.ms;
  };
  settle(root);
  return finished(root);
}

function finished(root) {
  const order = (node, parent, depth) => {
    node.parent = parent;
    node.depth = depth;
    node.children = [...node.children.values()].sort((a, b) => b.ms - a.ms);
    node.children.forEach((child) => order(child, node, depth + 1));
    node.bound = node.kernel ? node.kernel.bound : longest(node);
  };
  order(root, null, 0);
  root.whole = root;
  return root;
}

// The bound that most of what lies below has.
function longest(node) {
  const sums = {};
  const visit = (inner) => {
    if (inner.kernel) sums[inner.kernel.bound] = (sums[inner.kernel.bound] || 0) + inner.ms;
    inner.children.forEach(visit);
  };
  visit(node);
  return Object.keys(sums).sort((a, b) => sums[b] - sums[a])[0] || "unknown";
}

function zoomIcicle(node) {
  if (!node.whole) node.whole = icicleRoot.whole;
  icicleRoot = node;
  document.getElementById("icicle-out").hidden = node === node.whole;
  drawIcicle();
}

function drawIcicle() {
  if (!icicleRoot) return;
  const wide = icicleBox.clientWidth;
  const high = 26;
  const total = icicleRoot.ms || 1;
  const whole = icicleRoot.whole.ms || 1;
  const cells = [];
  let deepest = 0;
  const draw = (node, left, row) => {
    const width = (node.ms / total) * wide;
    deepest = Math.max(deepest, row);
    cells.push(cell(node, left, width, row, high, whole));
    let x = left;
    let rest = 0;
    let hidden = 0;
    for (const child of node.children) {
      const inner = (child.ms / total) * wide;
      if (inner < ICICLE_LEAST) {
        rest += child.ms;
        hidden += 1;
      } else {
        draw(child, x, row + 1);
        x += inner;
      }
    }
    const width2 = (rest / total) * wide;
    if (hidden && width2 >= 2) {
      deepest = Math.max(deepest, row + 1);
      const more = el("span.cell.rest", { "--c": colour("unknown"), title: `${grouped(hidden)} smaller, ${ms(rest)} together` }, width2 > 60 ? `${grouped(hidden)} smaller` : "");
      place(more, x, width2, row + 1, high);
      cells.push(more);
    }
  };
  draw(icicleRoot, 0, 0);
  icicleBox.replaceChildren(...cells);
  icicleBox.style.height = `${(deepest + 1) * high}px`;
  const first = icicleBox.querySelector("button");
  if (first) first.tabIndex = 0;
}

function place(node, left, width, row, high) {
  node.style.left = `${left}px`;
  node.style.width = `${Math.max(1, width - 1)}px`;
  node.style.top = `${row * high}px`;
}

function cell(node, left, width, row, high, whole) {
  const name = node.kernel ? `${node.kernel.id}  ${node.kernel.short || node.kernel.name}` : node.line ? String(node.name).split("/").pop() : node.name;
  const button = el("button.cell", {
    type: "button", tabindex: "-1", "--c": colour(node.bound),
    "aria-label": `${short(name, 120)}, ${ms(node.ms)}, ${percent(node.ms / whole)}`,
    onclick: () => {
      if (node.kernel) showKernel(node.kernel.id);
      else if (node.line && node === icicleRoot) showLine(node.file, node.line);
      else zoomIcicle(node === icicleRoot && node.parent ? node.parent : node);
    },
    onmousemove: (event) => showTooltip(event.clientX, event.clientY, el("b", {}, short(node.module ? `${node.module.path || "model"} (${node.module.type})` : name, 220)), el("br"),
      `${ms(node.ms)}, ${percent(node.ms / whole)}`, node.bound !== "unknown" && `, bound by ${node.bound}`),
    onmouseleave: hideTooltip,
    onkeydown: (event) => moveInIcicle(event, node),
  }, width > 34 ? short(name, Math.ceil(width / 5)) : "");
  place(button, left, width, row, high);
  button.node = node;
  node.button = button;
  return button;
}

function moveInIcicle(event, node) {
  const siblings = node.parent ? node.parent.children.filter((child) => child.button && child.button.isConnected) : [node];
  const at = siblings.indexOf(node);
  const target = {
    ArrowRight: siblings[at + 1], ArrowLeft: siblings[at - 1],
    ArrowDown: node.children.find((child) => child.button && child.button.isConnected),
    ArrowUp: node !== icicleRoot ? node.parent : null,
  }[event.key];
  if (event.key === "Escape" && icicleRoot.parent) {
    zoomIcicle(icicleRoot.whole);
    icicleBox.querySelector("button").focus();
  } else if (target) {
    node.button.tabIndex = -1;
    target.button.tabIndex = 0;
    target.button.focus();
  } else if (!event.key.startsWith("Arrow")) return;
  event.preventDefault();
  event.stopPropagation();
}

// ---- roofline -----------------------------------------------------------------------------------------------------

const MOST_BUBBLES = 300;

function unitOf(name) {
  if (/gemm|attention|flop/.test(name)) return "FLOP/s";
  if (/launch|kernel|allocate|latency/.test(name)) return "µs";
  return "B/s";
}

const ceilingName = (name) => seen(name).replace(/^(gpu|cpu)\./, "").replace(/\./g, " ");

function rooflineSection() {
  if (!list(record.kernels).length) return null;
  const ceilings = Object.entries(table(record.ceilings)).filter(([, value]) => number(value) > 0);
  const memory = ceilings.filter(([name]) => /(^|\.)(memory|l2|cache)/.test(name) && unitOf(name) === "B/s").sort((a, b) => b[1] - a[1]).slice(0, 4);
  const arithmetic = ceilings.filter(([name]) => /(^|\.)gemm\./.test(name)).sort((a, b) => b[1] - a[1]).slice(0, 5);
  const known = record.kernels.filter((kernel) => kernel.flops > 0 && kernel.bytes > 0 && kernel.total_ms > 0);
  const title = "How near to the machine’s limits";
  if (!memory.length || !arithmetic.length) {
    return section("roofline", title, "roofline", missing("This machine’s limits were not measured. ", code("trackside ceilings"), " measures and keeps them; then profile again."));
  }
  if (!known.length) {
    return section("roofline", title, "roofline", missing(`Neither bytes nor FLOPs of any ${thing} are known, so none can be placed; the limits are in the environment below.`));
  }
  const shown = known.slice().sort((a, b) => b.total_ms - a.total_ms).slice(0, MOST_BUBBLES);
  const points = shown.map((kernel) => ({ kernel, x: kernel.flops / kernel.bytes, y: kernel.flops / (kernel.total_ms / 1000) }));
  const left = record.kernels.length - shown.length;
  return section("roofline", title, "roofline",
    drawn((wide) => rooflineChart(wide, points, memory, arithmetic)),
    legend([...new Set(shown.map((kernel) => colourOf(kernel.bound)))]),
    el("p.note", {}, `Each circle is a ${thing}, its area the time in a step. Lines are this machine’s measured limits.`,
      left > 0 && ` ${many(left, thing)} not shown: FLOPs or bytes unknown, or small.`));
}

function rooflineChart(W, points, memory, arithmetic) {
  const H = W < 600 ? 320 : 400;
  const M = { left: 78, right: 88, top: 18, bottom: 44 };
  const peak = arithmetic[0][1];
  const xs = [...points.map((point) => point.x), peak / memory[memory.length - 1][1], 0.1];
  const [x0, x1] = [Math.floor(Math.log10(Math.min(...xs))), Math.ceil(Math.log10(Math.max(...xs) * 1.3))];
  const lowest = Math.min(...points.map((point) => point.y), peak / 1e3);
  const [y0, y1] = [Math.max(Math.floor(Math.log10(lowest)), Math.ceil(Math.log10(peak)) - 7), Math.ceil(Math.log10(peak * 1.2))];
  const X = (value) => M.left + ((Math.log10(value) - x0) / (x1 - x0)) * (W - M.left - M.right);
  const Y = (value) => H - M.bottom - ((Math.max(y0, Math.log10(value)) - y0) / (y1 - y0)) * (H - M.top - M.bottom);
  const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": `Roofline: ${many(points.length, thing)} against measured limits` });
  for (let i = x0; i <= x1; i += 1) {
    add(chart, [svg("line", { class: "grid", x1: X(10 ** i), x2: X(10 ** i), y1: M.top, y2: H - M.bottom }),
      (W > 500 || i % 2 === 0) && svg("text", { class: "tick", x: X(10 ** i), y: H - M.bottom + 16, "text-anchor": "middle" }, i < 0 ? String(10 ** i) : grouped(10 ** i))]);
  }
  for (let i = y0; i <= y1; i += 1) {
    chart.append(svg("line", { class: "grid", x1: M.left, x2: W - M.right, y1: Y(10 ** i), y2: Y(10 ** i) }),
      svg("text", { class: "tick", x: M.left - 6, y: Y(10 ** i) + 4, "text-anchor": "end" }, prefixed(10 ** i, "FLOP/s").replace(/\.0+/, "")));
  }
  chart.append(svg("text", { class: "tick", x: (M.left + W - M.right) / 2, y: H - 8, "text-anchor": "middle" }, "FLOP per byte moved"));
  memory.forEach(([name, speed], i) => {
    const from = Math.max(10 ** x0, 10 ** y0 / speed);
    const to = Math.min(peak / speed, 10 ** x1);
    chart.append(svg("line", { class: i === memory.length - 1 ? "roof" : "roof faint", x1: X(from), y1: Y(from * speed), x2: X(to), y2: Y(to * speed) }));
    // Names of lines that lie close together begin at different places.
    const at = i % 2 ? to / 1.5 : Math.max(from * 1.1, to / 300);
    const angle = (Math.atan2(Y(to * speed) - Y(from * speed), X(to) - X(from)) * 180) / Math.PI;
    chart.append(svg("text", { class: "roofname", x: 0, y: -6, "text-anchor": i % 2 ? "end" : "start", transform: `translate(${X(at)} ${Y(at * speed)}) rotate(${angle})` }, `${short(ceilingName(name), 24)} ${prefixed(speed, "B/s")}`));
  });
  let lastY = -99;
  arithmetic.forEach(([name, speed], i) => {
    const from = speed / memory[0][1];
    chart.append(svg("line", { class: i === 0 ? "roof" : "roof faint", x1: X(Math.max(from, 10 ** x0)), x2: W - M.right, y1: Y(speed), y2: Y(speed) }));
    const y = Math.max(Y(speed) + 4, lastY + 27);
    lastY = y;
    chart.append(svg("text", { class: "roofname", x: W - M.right + 6, y: y - 5 }, short(ceilingName(name), 14)),
      svg("text", { class: "tick", x: W - M.right + 6, y: y + 7 }, prefixed(speed, "FLOP/s")));
  });
  const most = Math.max(...points.map((point) => point.kernel.total_ms));
  for (const { kernel, x, y } of points) {
    const circle = svg("circle", {
      cx: X(x), cy: Y(y), r: 3 + 17 * Math.sqrt(kernel.total_ms / most), class: "bubble", "--c": colour(kernel.bound),
      onclick: () => showKernel(kernel.id),
      onmousemove: (event) => showTooltip(event.clientX, event.clientY, el("b", {}, `${short(kernel.id, 24)} `, short(kernel.name, 160)), el("br"),
        `${ms(kernel.total_ms)}, ${prefixed(y, "FLOP/s")}, ${three(x)} FLOP per byte`,
        number(kernel.roof_share) !== null && `, ${percent(kernel.roof_share)} of the roof`),
      onmouseleave: hideTooltip,
    });
    chart.append(circle);
  }
  for (const { kernel, x, y } of points.slice(0, 6)) {
    chart.append(svg("text", { class: "bubblename", x: X(x), y: Y(y) + 4, "text-anchor": "middle" }, short(kernel.id, 8)));
  }
  return chart;
}
