"use strict";
// Time to target: the outcome of each trial, and bars that show censoring.

const OUTCOMES = {
  reached: { mark: "circle", word: "reached" },
  "not reached": { mark: "right", word: "not reached by the end of the run" },
  "ended early": { mark: "diamond", word: "ended early, before it could be known" },
  diverged: { mark: "cross", word: "diverged" },
  unfinished: { mark: "square", word: "failed, stopped or running" },
  "not measured": { mark: "down", word: "accuracy not measured over time" },
};

function targetPanel(series) {
  if (!series.length) return [notice("No method is switched on.")];
  const known = series.some((one) => one.outcomes.some((outcome) => outcome.kind !== "not measured"));
  if (!known || !series.some((one) => one.curves.time.test_accuracy)) {
    return [notice("No test accuracy was measured over time, so there is no time to a target.")];
  }
  const most =
    Math.max(
      ...series.flatMap((one) => one.outcomes.map((outcome) => outcome.time_s || 0)),
      data.settings[state.setting].horizon_s || 0,
    ) || 1;
  const rows = perRow(series, (inside) =>
    element(
      "div",
      { class: "strips" },
      ...inside.map((one) => targetRow(one, most, inside)),
      scaleRow([0, most], `${data.clock} to ${format(data.target)} % test accuracy (s)`),
    ),
  );
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
  return strip(
    shortNameWithStep(series, among),
    series,
    drawing(34, draw, `${fullName(series)}: ${targetWords(series)}`),
    targetWords(series),
  );
}

// Solid where most trials reached the target; hatched where they did not until the end; outlined where that is not known.
function bar(kind, from, to, look) {
  const box = {
    x: from,
    y: 9,
    width: Math.max(to - from, 1),
    height: 16,
    rx: 2,
    class: `target-bar ${kind.replace(" ", "-")}`,
  };
  if (kind === "reached") return [shape("rect", { ...box, fill: look, opacity: 0.55 })];
  const hatch = `hatch${(clips += 1)}`;
  if (kind === "not reached") {
    return [
      shape(
        "pattern",
        { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        shape("rect", { width: 2, height: 6, fill: look, opacity: 0.7 }),
      ),
      shape("rect", { ...box, fill: `url(#${hatch})`, stroke: look, "stroke-opacity": 0.35 }),
    ];
  }
  return [
    shape("rect", {
      ...box,
      fill: "none",
      stroke: look,
      "stroke-width": 1.4,
      "stroke-dasharray": kind === "diverged" ? "1 3" : "5 3",
    }),
  ];
}

function outcomeMark(outcome, x, y, look, series) {
  const open = outcome.kind !== "reached";
  const node = marker(OUTCOMES[outcome.kind].mark, x, y, 4, {
    fill: open ? "var(--paper)" : look,
    stroke: look,
    "stroke-width": outcome.kind === "diverged" ? 2.4 : 1.4,
    class: "outcome",
    "data-kind": outcome.kind,
  });
  return tip(node, fullName(series), [
    ["seed", String(outcome.seed)],
    [OUTCOMES[outcome.kind].word, `${format(outcome.time_s, 5)} s`],
  ]);
}

function counted(series) {
  const counts = new Map();
  for (const { kind } of series.outcomes) counts.set(kind, (counts.get(kind) || 0) + 1);
  return counts;
}

// The outcome of most trials: the median if more than half reached the target, else the most frequent other outcome.
function mainOutcome(series) {
  const counts = counted(series);
  if (2 * (counts.get("reached") || 0) > series.outcomes.length) return { kind: "reached", time_s: series.target_s };
  const others = [...counts].filter(([kind]) => kind !== "reached").sort((one, other) => other[1] - one[1]);
  const kind = others[0][0];
  return {
    kind,
    time_s: Math.max(
      ...series.outcomes.filter((outcome) => outcome.kind === kind).map((outcome) => outcome.time_s || 0),
    ),
  };
}

function targetWords(series) {
  const main = mainOutcome(series);
  const count = series.outcomes.length;
  const at = `${main.time_s < 1 ? format(main.time_s, 2) : fixed(main.time_s, 1)} s`;
  const first = {
    reached: at,
    "not reached": `not reached by ${at}`,
    "ended early": `ended at ${at}`,
    diverged: `diverged at ${at}`,
    unfinished: `${series.states[0].word}, seen up to ${at}`,
    "not measured": "not measured",
  }[main.kind];
  if (count === 1) return first;
  const words = [...counted(series)].map(([kind, number]) => `${number} ${kind}`);
  return words.length === 1
    ? `${first} (${count} of ${count})`
    : `${main.kind === "reached" ? `${first}; ` : ""}${words.join(", ")}`;
}

function shortNameWithStep(series, among) {
  const name = shortName(series, among);
  return name.includes("α=") ? name : `${series.label} α=${format(series.step_size)}${name.slice(series.label.length)}`;
}

function outcomeKey(series) {
  const kinds = Object.keys(OUTCOMES).filter((kind) => series.some((one) => counted(one).has(kind)));
  const entries = kinds.map((kind) =>
    element(
      "span",
      { class: "key" },
      shape(
        "svg",
        { width: 14, height: 14, "aria-hidden": "true" },
        marker(OUTCOMES[kind].mark, 7, 7, 4, {
          fill: kind === "reached" ? "var(--muted)" : "var(--paper)",
          stroke: "var(--muted)",
          "stroke-width": 1.5,
        }),
      ),
      OUTCOMES[kind].word,
    ),
  );
  return element(
    "p",
    { class: "caption" },
    "A mark is a trial. ",
    ...entries,
    " Solid bars end at the median, where more than half of the trials reached the target; the others count as later than those. " +
      "Hatched bars end where the runs ended (the time is longer than that); outlined ones say nothing about the time.",
  );
}
