// Ranks side by side: who works how long, and who waits for whom.

const MOST_RANKS = 256;

function ranksSection() {
  const ranks = list(record.ranks);
  if (ranks.length < 2) return null;
  const longest = Math.max(...ranks.map((one) => number(one.step_ms) || 0)) || 1;
  const hosts = new Set(ranks.map((one) => one.host));
  return section("ranks", "Ranks", "rank",
    el("div.wide.tall", {}, el("table.small.ranks", {},
      el("caption.unseen", {}, "A step of each rank, its parts and what it waits for others"),
      el("thead", {}, el("tr", {}, el("th", {}, "rank"), hosts.size > 1 && el("th", {}, "machine"), el("th", {}, "a step"), el("th.figure", {}, "step"),
        el("th.figure", {}, "at work", help("at work")), el("th.figure", {}, "waiting", help("waiting")), el("th.figure", {}, "peak memory"), el("th", {}, "ended"))),
      el("tbody", {}, ranks.slice(0, MOST_RANKS).map((one) => rankRow(one, longest, hosts.size > 1))))),
    legend(PARTS),
    ranks.length > MOST_RANKS && el("p.note", {}, `${many(ranks.length - MOST_RANKS, "more rank")} in the record.`),
    el("p.note", {}, `All else on this page is about rank ${count(ranks[0].rank)}.`));
}

function rankRow(one, longest, named) {
  const parts = table(one.breakdown_ms);
  const step = number(one.step_ms);
  const work = step !== null && number(parts.communication) !== null ? step - parts.communication : null;
  return el("tr", {},
    el("th", { scope: "row" }, count(one.rank)),
    named && el("td", {}, short(one.host, 40)),
    el("td", {}, el("div.stack", { "--long": `${(100 * (step || 0)) / longest}%`, "aria-hidden": "true" }, step === null ? null : PARTS.map((part) =>
      el("i", { "--wide": `${(100 * (number(parts[part]) || 0)) / step}%`, "--c": colour(part), title: `${part} ${ms(parts[part])}` })))),
    [step, work, number(one.waiting_ms)].map((value) => el("td.figure", {}, value === null ? "–" : ms(value))),
    el("td.figure", {}, number(one.peak_bytes) === null ? "–" : size(one.peak_bytes)),
    el("td", {}, rankEnd(one.program)));
}

function rankEnd(end) {
  if (!end) return "not known";
  return end.signal ? short(end.signal, 40) : `exit code ${count(end.exit_code)}`;
}
