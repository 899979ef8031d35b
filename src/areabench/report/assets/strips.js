"use strict";
// Rows with a label each: time to target, staleness, participation of clients; and the dots of the label distribution.

function strip(label, series, drawing, value) {
  const dot = shape("svg", { width: 12, height: 12, "aria-hidden": "true" }, marker(markerOf(series), 6, 6, 4, { fill: inkOf(series.colour) }));
  return element("div", { class: "strip-row", "data-label": series.label },
    element("div", { class: "strip-label" }, dot, label), drawing, element("div", { class: "strip-value" }, value));
}

// A drawing as wide as its place, drawn again when that changes.
function drawing(height, draw, label) {
  const box = element("div", { class: "strip-drawing" });
  later(() => {
    const width = Math.max(160, box.clientWidth || 480);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label });
    draw(svg, width);
    box.replaceChildren(svg);
  });
  return box;
}

function tip(node, heading, rows) {
  fill(node, { on: {
    pointermove: (event) => tooltip.show(event.clientX, event.clientY, heading, rows),
    pointerleave: () => tooltip.hide(),
  } }, []);
  return node;
}

function axisBelow(svg, scale, y, label, width) {
  const group = shape("g", { class: "ticks" });
  for (const tick of scale.ticks(Math.max(3, Math.floor(width / 90)))) {
    group.append(shape("line", { x1: scale(tick), x2: scale(tick), y1: y, y2: y + 4, class: "tick" }),
      shape("text", { x: scale(tick), y: y + 17, "text-anchor": "middle" }, format(tick)));
  }
  group.append(shape("text", { x: width / 2, y: y + 33, "text-anchor": "middle", class: "title" }, label));
  svg.append(group);
}

function scaleRow(range, label) {
  return element("div", { class: "strip-row axis" }, element("div", { class: "strip-label" }),
    drawing(38, (svg, width) => axisBelow(svg, linearScale(range, [6, width - 14]), 0, label, width), label),
    element("div", { class: "strip-value" }));
}

// ------------------------------------------------------------------------------------------------ time to target

const OUTCOMES = {
  reached: { mark: "circle", word: "reached" },
  "not reached": { mark: "right", word: "not reached by the end of the run" },
  "ended early": { mark: "diamond", word: "ended early, before it could be known" },
  diverged: { mark: "cross", word: "diverged" },
  unfinished: { mark: "square", word: "failed, stopped or under way" },
  "not measured": { mark: "down", word: "accuracy not measured over time" },
};

function targetPanel(series) {
  if (!series.length) return [notice("No method is switched on.")];
  const known = series.some((one) => one.outcomes.some((outcome) => outcome.kind !== "not measured"));
  if (!known || !series.some((one) => one.curves.time.test_accuracy)) {
    return [notice("No test accuracy was measured over time, so there is no time to a target.")];
  }
  const most = Math.max(...series.flatMap((one) => one.outcomes.map((outcome) => outcome.time_s || 0)), data.settings[state.setting].horizon_s || 0) || 1;
  const rows = perRow(series, (inside) => element("div", { class: "strips" },
    ...inside.map((one) => targetRow(one, most, inside)), scaleRow([0, most], `time to ${format(data.target)} % test accuracy (s)`)));
  return [...rows, outcomeKey(series)];
}

function targetRow(series, most, among) {
  const main = mainOutcome(series);
  const draw = (svg, width) => {
    const x = linearScale([0, most], [6, width - 14]);
    const end = main.kind === "reached" ? series.target_s : main.time_s;
    const look = inkOf(series.colour);
    svg.append(shape("line", { x1: 6, x2: width - 14, y1: 17, y2: 17, class: "rail" }));
    svg.append(...bar(main.kind, x(0), x(end), look));
    const places = new Map();
    for (const outcome of series.outcomes) {
      const at = Math.round(x(outcome.time_s) / 4);
      places.set(at, (places.get(at) || 0) + 1);
      const y = 17 + (series.outcomes.length > 1 ? [0, -5, 5, -9, 9][(places.get(at) - 1) % 5] : 0);
      svg.append(outcomeMark(outcome, x(outcome.time_s), y, look, series));
    }
  };
  return strip(shortNameWithStep(series, among), series, drawing(34, draw, `${fullName(series)}: ${targetWords(series)}`), targetWords(series));
}

// Solid where most trials reached the target; hatched where they did not until the end; outlined where that is not known.
function bar(kind, from, to, look) {
  const box = { x: from, y: 9, width: Math.max(to - from, 1), height: 16, rx: 2, class: `target-bar ${kind.replace(" ", "-")}` };
  if (kind === "reached") return [shape("rect", { ...box, fill: look, opacity: 0.55 })];
  const hatch = `hatch${(clips += 1)}`;
  if (kind === "not reached") {
    return [
      shape("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        shape("rect", { width: 2, height: 6, fill: look, opacity: 0.7 })),
      shape("rect", { ...box, fill: `url(#${hatch})`, stroke: look, "stroke-opacity": 0.35 }),
    ];
  }
  return [shape("rect", { ...box, fill: "none", stroke: look, "stroke-width": 1.4, "stroke-dasharray": kind === "diverged" ? "1 3" : "5 3" })];
}

function outcomeMark(outcome, x, y, look, series) {
  const open = outcome.kind !== "reached";
  const node = marker(OUTCOMES[outcome.kind].mark, x, y, 4, {
    fill: open ? "var(--paper)" : look, stroke: look, "stroke-width": outcome.kind === "diverged" ? 2.4 : 1.4, class: "outcome", "data-kind": outcome.kind,
  });
  return tip(node, fullName(series), [["seed", String(outcome.seed)], [OUTCOMES[outcome.kind].word, `${format(outcome.time_s, 5)} s`]]);
}

function counted(series) {
  const counts = new Map();
  for (const { kind } of series.outcomes) counts.set(kind, (counts.get(kind) || 0) + 1);
  return counts;
}

// What most trials say: the mean of those that reached the target if they are more than half, else the commonest other end.
function mainOutcome(series) {
  const counts = counted(series);
  if (2 * (counts.get("reached") || 0) > series.outcomes.length) return { kind: "reached", time_s: series.target_s };
  const others = [...counts].filter(([kind]) => kind !== "reached").sort((one, other) => other[1] - one[1]);
  const kind = others[0][0];
  return { kind, time_s: Math.max(...series.outcomes.filter((outcome) => outcome.kind === kind).map((outcome) => outcome.time_s || 0)) };
}

function targetWords(series) {
  const main = mainOutcome(series);
  const count = series.outcomes.length;
  const at = `${main.time_s < 1 ? format(main.time_s, 2) : fixed(main.time_s, 1)} s`;
  const first = { reached: at, "not reached": `not reached by ${at}`, "ended early": `ended at ${at}`, diverged: `diverged at ${at}`,
    unfinished: `${series.states[0].word}, seen up to ${at}`, "not measured": "not measured" }[main.kind];
  if (count === 1) return first;
  const words = [...counted(series)].map(([kind, number]) => `${number} ${kind}`);
  return words.length === 1 ? `${first} (${count} of ${count})` : `${main.kind === "reached" ? `${first}; ` : ""}${words.join(", ")}`;
}

function shortNameWithStep(series, among) {
  const name = shortName(series, among);
  return name.includes("α=") ? name : `${series.label} α=${format(series.step_size)}${name.slice(series.label.length)}`;
}

function outcomeKey(series) {
  const kinds = Object.keys(OUTCOMES).filter((kind) => series.some((one) => counted(one).has(kind)));
  const entries = kinds.map((kind) => element("span", { class: "key" },
    shape("svg", { width: 14, height: 14, "aria-hidden": "true" }, marker(OUTCOMES[kind].mark, 7, 7, 4, {
      fill: kind === "reached" ? "var(--muted)" : "var(--paper)", stroke: "var(--muted)", "stroke-width": 1.5 })), OUTCOMES[kind].word));
  return element("p", { class: "caption" }, "A mark is a trial. ", ...entries,
    " Solid bars end at the mean of the trials that reached the target, where more than half did; hatched bars reach as far as was "
    + "looked (the time is longer than that); outlined ones say nothing about the time.");
}

// ------------------------------------------------------------------------------------------------ staleness

function stalenessPanel(series) {
  const there = series.filter((one) => one.staleness);
  if (!there.length) return [notice(series.length ? "No update was used in these runs." : "No method is switched on.")];
  const most = Math.max(...there.map((one) => one.staleness.width * one.staleness.shares.length), 5);
  return [
    ...perRow(there, (inside) => element("div", { class: "strips" },
      ...inside.map((one) => stalenessRow(one, most, inside)), scaleRow([-0.5, most - 0.5], "staleness (server steps)"))),
    element("p", { class: "caption" }, "Share of updates by the number of server steps between the model that a client started from and "
      + "the arrival of its update; each row has its own height, the line marks the mean."),
  ];
}

function stalenessRow(series, most, among) {
  const { width: bin, shares, mean, p95, most: largest } = series.staleness;
  const highest = Math.max(...shares);
  const draw = (svg, width) => {
    const x = linearScale([-0.5, most - 0.5], [6, width - 14]);
    shares.forEach((share, index) => {
      const height = 40 * (share / highest);
      const left = x(index * bin - 0.5);
      const node = shape("rect", { x: left, y: 44 - height, width: Math.max(x((index + 1) * bin - 0.5) - left - 0.6, 0.8), height, fill: inkOf(series.colour), opacity: 0.8 });
      const versions = bin === 1 ? `${index}` : `${index * bin} to ${(index + 1) * bin - 1}`;
      svg.append(tip(node, fullName(series), [["staleness", `${versions} steps`], ["share of updates", `${format(share, 3)} %`]]));
    });
    svg.append(shape("line", { x1: 6, x2: width - 14, y1: 44, y2: 44, class: "base" }),
      shape("line", { x1: x(mean), x2: x(mean), y1: 2, y2: 48, class: "mean" }));
  };
  const words = largest ? `mean ${format(mean, 3)}, 95 % ≤ ${p95}, max ${largest}` : "every update is fresh";
  return strip(shortNameWithStep(series, among), series, drawing(50, draw, `${fullName(series)}: ${words}`), words);
}

// ------------------------------------------------------------------------------------------------ participation

function participationStrip(detail) {
  const series = data.series[detail.series];
  const part = detail.participation;
  if (!part) return notice("Nobody has been served yet.");
  const top = Math.max(...part.most, ...part.high.map((value) => value || 0), 1);
  const draw = (svg, width) => {
    const count = part.client.length;
    const x = linearScale([-0.5, count - 0.5], [48, width - 8]);
    const y = linearScale([0, top * 1.05], [150, 8]);
    for (const tick of y.ticks(3)) {
      svg.append(shape("g", { class: "ticks" }, shape("line", { x1: 48, x2: width - 8, y1: y(tick), y2: y(tick), class: "grid-line" }),
        shape("text", { x: 42, y: y(tick) + 4, "text-anchor": "end" }, format(tick))));
    }
    const room = (width - 56) / count;
    part.client.forEach((client, index) => svg.append(...clientBar(part, index, x(index), y, Math.max(room * 0.74, 1), series)));
    clientAxis(svg, part, x, width);
  };
  const short = part.client.filter((_, index) => part.served[index] < part.low[index]).length;
  return element("div", {}, drawing(186, draw, `Updates of each client of ${detail.name}, expected and served`), element("p", { class: "caption" },
    `Bars: updates used of ${part.group > 1 ? `each group of ${part.group} clients, ordered by expectation` : "each client"}. Dashes: expected. Shaded: what chance allows. `
    + (short ? `${plural(short, part.group > 1 ? "group" : "client")} served less than that.` : "None is served less than that.")));
}

function clientBar(part, index, x, y, width, series) {
  const known = isNumber(part.expected[index]);
  const few = known && part.served[index] < part.low[index];
  const name = part.group > 1 ? `from client ${part.client[index]} on` : `client ${part.client[index]}`;
  const rows = [["served", format(part.served[index], 5)], ["expected", format(part.expected[index], 4)],
    ["chance allows", `${format(part.low[index])} to ${format(part.high[index])}`]];
  if (part.group > 1) rows.push(["least, most", `${part.least[index]}, ${part.most[index]}`]);
  const nodes = [shape("rect", { x: x - width / 2, y: y(part.served[index]), width, height: 150 - y(part.served[index]), fill: inkOf(series.colour), opacity: few ? 1 : 0.75, class: "served" })];
  if (known) {
    nodes.push(shape("rect", { x: x - width * 0.66, y: y(part.high[index]), width: width * 1.32, height: Math.max(y(part.low[index]) - y(part.high[index]), 1), class: "chance" }),
      shape("line", { x1: x - width * 0.66, x2: x + width * 0.66, y1: y(part.expected[index]), y2: y(part.expected[index]), class: "expected" }));
  }
  nodes.push(tip(shape("rect", { x: x - width * 0.66, y: 8, width: width * 1.32, height: 142, class: "cover" }), name, rows));
  return nodes;
}

function clientAxis(svg, part, x, width) {
  const count = part.client.length;
  const group = shape("g", { class: "ticks" }, shape("line", { x1: 48, x2: width - 8, y1: 150, y2: 150, class: "base" }),
    shape("text", { x: (48 + width) / 2, y: 183, "text-anchor": "middle", class: "title" }, "client"),
    shape("text", { transform: "translate(11 79) rotate(-90)", "text-anchor": "middle", class: "title" }, "updates"));
  for (const index of linearTicks(0, count - 1, Math.min(count - 1, Math.floor(width / 60)) || 1).filter(Number.isInteger)) {
    group.append(shape("text", { x: x(index), y: 166, "text-anchor": "middle" }, String(part.client[index])));
  }
  svg.append(group);
}

// ------------------------------------------------------------------------------------------------ labels

function labelsPanel() {
  const found = data.labels.filter((labels) => labels.setting <= state.setting).pop();
  if (!found) return [notice("There is no run whose split could be shown.")];
  if (!found.counts.length) return [notice(`${found.title}: ${found.reason}`)];
  const classes = found.counts[0].length;
  const height = 74 + classes * 20 + 34;
  return [
    drawing(height, (svg, width) => labelDots(svg, width, found, classes), `Samples of each class by client: ${found.title}`),
    element("p", { class: "caption" }, `${found.title[0].toUpperCase()}${found.title.slice(1)}${found.clients > found.counts.length ? `; the first ${found.counts.length} of ${whole(found.clients)} clients` : ""}. `
      + "The area of a dot is the number of samples of a class that a client holds; bars: samples of each client. Other seeds split otherwise."),
  ];
}

function labelDots(svg, width, found, classes) {
  const counts = found.counts;
  const x = linearScale([-0.5, counts.length - 0.5], [48, width - 8]);
  const totals = counts.map((row) => row.reduce((sum, value) => sum + value, 0));
  const most = Math.max(...counts.flat(), 1);
  const room = (width - 56) / counts.length;
  const largest = Math.min(9.5, Math.max(room * 0.5, 3));
  const heights = linearScale([0, Math.max(...totals)], [58, 8]);
  const ticks = shape("g", { class: "ticks" });
  counts.forEach((row, client) => {
    const bars = shape("rect", { x: x(client) - room * 0.36, width: Math.max(room * 0.72, 1), y: heights(totals[client]), height: 58 - heights(totals[client]), class: "total" });
    svg.append(tip(bars, `client ${client}`, [["samples", whole(totals[client])]]));
    row.forEach((count, label) => {
      if (!count) return;
      const dot = shape("circle", { cx: x(client), cy: 80 + label * 20, r: Math.max(largest * Math.sqrt(count / most), 0.7), class: "dot" });
      svg.append(tip(dot, `client ${client}`, [[`class ${label}`, `${whole(count)} samples`], ["of its own", `${format((100 * count) / totals[client], 3)} %`]]));
    });
  });
  for (let label = 0; label < classes; label += Math.ceil(classes / 20)) ticks.append(shape("text", { x: 40, y: 84 + label * 20, "text-anchor": "end" }, String(label)));
  const bottom = 80 + classes * 20;
  for (const client of linearTicks(0, counts.length - 1, Math.min(counts.length - 1, Math.floor(width / 60)) || 1).filter(Number.isInteger)) {
    ticks.append(shape("text", { x: x(client), y: bottom + 8, "text-anchor": "middle" }, String(client)));
  }
  ticks.append(shape("text", { x: 42, y: 14, "text-anchor": "end" }, whole(Math.max(...totals))),
    shape("text", { x: (48 + width) / 2, y: bottom + 25, "text-anchor": "middle", class: "title" }, "client"),
    shape("text", { transform: `translate(11 ${80 + classes * 9}) rotate(-90)`, "text-anchor": "middle", class: "title" }, "class"),
    shape("line", { x1: 48, x2: width - 8, y1: 58, y2: 58, class: "base" }));
  svg.append(ticks);
}
