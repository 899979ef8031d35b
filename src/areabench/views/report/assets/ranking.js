"use strict";
// How sure the ranking is: differences from the best mean, the share of trials that reached the target over time, and
// performance profiles.

const RANKED = {
  accuracy: { word: "Accuracy %", decimals: 2 },
  loss: { word: "Loss", decimals: 3 },
  rho: { word: "Time to target / horizon", decimals: 3 },
};

function signed(value, decimals) {
  return `${value > 0 ? "+" : ""}${fixed(value, decimals)}`;
}

function pWord(p) {
  return p < 0.001 ? "< 0.001" : fixed(p, 3);
}

// What a cell of the summary says of its rank when it is pointed at.
function rankWords(rank) {
  const found = rank.difference;
  if (!found) return rank.is_reference ? `best mean${rank.mark === "tied" ? ", tied" : ""}` : null;
  return `${format(found.mean, 3)} (${format(found.low, 3)} to ${format(found.high, 3)}) from the best mean, p = ${pWord(found.p)}`;
}

function differencesPanel(all) {
  const series = all.filter((one) => Object.values(one.ranks).some((rank) => rank.is_reference || rank.difference));
  const compared = series.some((one) => Object.values(one.ranks).some((rank) => rank.difference));
  if (!compared)
    return [notice("Nothing to compare: it takes two rows with the same rates, two common seeds and no diverged trial.")];
  const shownQualities = Object.keys(RANKED).filter((name) => series.some((one) => one.ranks[name].difference));
  const words = ["Method", "Step size α", ...shownQualities.flatMap((name) => [RANKED[name].word, "p"])];
  const heads = words.map((word, index) =>
    element("th", { scope: "col", class: index ? null : "left" }, element("span", {}, word)),
  );
  return [
    ...perRow(series, (inside) =>
      element(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Differences from the best" },
        element(
          "table",
          { class: "differences" },
          element("thead", {}, element("tr", {}, ...heads.map((head) => head.cloneNode(true)))),
          element("tbody", {}, ...inside.map((one) => differenceRow(one, shownQualities))),
        ),
      ),
    ),
    element(
      "p",
      { class: "caption" },
      "Mean difference from the best mean of the same rates, trial by trial with the same seed, and its 95 % interval in small print. " +
        "p: permutation test of the signs, two-sided, with Holm's correction; above 0.05 the two are tied. " +
        "A trial that did not reach the target counts as the horizon.",
    ),
  ];
}

function differenceRow(one, qualities) {
  const cells = qualities.flatMap((name) => {
    const rank = one.ranks[name];
    const { decimals } = RANKED[name];
    const found = rank.difference;
    if (!found)
      return [element("td", { class: rank.mark || null }, rank.is_reference ? "best mean" : "–"), element("td", {})];
    const small = element("small", {}, ` ${signed(found.low, decimals)} to ${signed(found.high, decimals)}`);
    return [
      element("td", { class: rank.mark || null }, signed(found.mean, decimals), small),
      element("td", {}, pWord(found.p)),
    ];
  });
  const name = [methodCell(one), one.remark ? ` ${one.remark}` : ""];
  return element("tr", {}, element("td", { class: "left" }, ...name), element("td", {}, format(one.step_size)), ...cells);
}

// ------------------------------------------------------------------------------------------------ stairs

// A share as points of a line: the share stays the same until the next place.
function stairs(values) {
  return values.flatMap((value, index) => (index ? [values[index - 1], value] : [value]));
}

function stairLine(stair, end) {
  const x = end === undefined ? stair.x : [...stair.x, end];
  const extended = (values) => (end === undefined || !values.length ? values : [...values, values[values.length - 1]]);
  return {
    x: x.flatMap((value, index) => (index ? [value, value] : [value])),
    mean: stairs(extended(stair.share)),
    low: [],
    high: [],
    limits: [0, 100],
  };
}

function reachedPanel(series) {
  const there = series.filter((one) => one.reached);
  if (!there.length)
    return [notice(series.length ? "No test accuracy was measured over time." : "No method is switched on.")];
  return [
    ...perRow(there, (inside) => {
      const lines = inside.map((one) => ({ ...lineFor(one, stairLine(one.reached), inside), marker: null, faded: false }));
      const yLabel = `trials that have reached ${format(data.target)} % (%)`;
      const words = `At the end: ${inside.map(reachedWords).join("; ")}.`;
      return element(
        "div",
        {},
        pair([{ lines, xLabel: AXES.time.label, yLabel, wholeY: [0, 100] }]),
        element("p", { class: "caption" }, words),
      );
    }),
    element(
      "p",
      { class: "caption" },
      "Share of trials that have reached the target so far (Kaplan–Meier): a trial that ended early counts until then, " +
        "one that diverged never reaches it.",
    ),
  ];
}

// The interval at the end, which a chart of many lines has no room for.
function reachedWords(one) {
  const last = one.reached.share.length - 1;
  const { low, high, share } = one.reached;
  const interval = isNumber(low[last]) ? ` (95 % interval ${fixed(low[last], 0)} to ${fixed(high[last], 0)} %)` : "";
  return `${fullName(one)}: ${fixed(share[last], 0)} %${interval}`;
}

function profilePanel() {
  const shown = data.profile.filter((one) => !state.hidden.has(one.label));
  if (!shown.length) return [notice("No method is switched on.")];
  const most = 1.1 * Math.max(2, ...shown.map((one) => one.line.x[one.line.x.length - 1]));
  const lines = shown.map((one) => ({
    ...stairLine(one.line, most),
    colour: one.colour,
    dash: dashOf(one),
    marker: null,
    label: one.label,
    name: one.label,
    opacity: 1,
    faded: false,
  }));
  return [
    pair([{ lines, xLabel: "factor of the best time to target", yLabel: "share of settings (%)", wholeY: [0, 100] }]),
    element(
      "p",
      { class: "caption" },
      "In which share of settings (with their rates) a method, at its best step size, reaches the target within a factor of the shortest " +
        "median time; at factor 1: how often it is the fastest. A setting in which it does not reach it counts as not solved.",
    ),
  ];
}
