"use strict";
// Quality over time, updates or aggregations, and final quality over the step size.

const AXES = {
  time: { word: `${data.clock[0].toUpperCase()}${data.clock.slice(1)}`, label: `${data.clock} (s)` },
  updates: { word: "Updates received", label: "updates received" },
  aggregations: { word: "Aggregations", label: "server steps (aggregations)" },
};
const SPREADS = { interval: "the 95 % interval of the mean", range: "the range over trials" };
const QUANTITIES = {
  test_accuracy: { word: "test accuracy (%)", log: false },
  train_loss: { word: "training loss", log: true },
};

// The name of a series among those shown with it.
function shortName(series, among) {
  const several = among.filter((other) => other.label === series.label && other.row === series.row);
  const differs = (pick) => new Set(several.map(pick)).size > 1;
  const words = [series.label];
  if (differs((one) => one.step_size)) words.push(`α=${format(series.step_size)}`);
  if (differs((one) => one.remark)) words.push(series.remark);
  return words.filter(Boolean).join(" ");
}

function fullName(series) {
  return [`${series.label}, α = ${format(series.step_size)}`, series.remark].filter(Boolean).join(", ");
}

function lineFor(series, values, among) {
  const alike = among.filter((other) => other.label === series.label && other.row === series.row);
  const place = alike.indexOf(series);
  return {
    ...values,
    colour: series.colour,
    dash: dashOf(series),
    marker: markerOf(series),
    label: shortName(series, among),
    name: fullName(series),
    opacity: alike.length > 1 ? 0.4 + 0.6 * ((place + 1) / alike.length) : 1,
    faded: series.diverged === series.trials,
  };
}

// One box per rates setting, with headings where there are several.
function perRow(series, draw) {
  const setting = data.settings[state.setting];
  return setting.rates.map((rates, row) => {
    const inside = series.filter((one) => one.row === row);
    const heading = setting.rates.length > 1 ? element("h3", {}, `Rates: ${rates}`) : null;
    return element("div", { class: "row" }, heading, draw(inside));
  });
}

function pair(charts) {
  const boxes = charts.map(() => element("div", { class: "plot" }));
  later(() => charts.forEach((chart, index) => lineChart(boxes[index], chart)));
  return element("div", { class: charts.length > 1 ? "pair" : "alone" }, ...boxes);
}

// ------------------------------------------------------------------------------------------------ curves

function curvesPanel(series) {
  const measured = Object.keys(QUANTITIES).filter((quantity) => series.some((one) => one.curves[state.axis][quantity]));
  if (!series.length) return [notice("No method is switched on.")];
  if (!measured.length)
    return [
      notice(
        "Nothing has been evaluated in these runs, so there is no accuracy and no loss; that happens when a run has ended.",
      ),
    ];
  return [
    axisControl(),
    ...perRow(series, (inside) => pair(measured.map((quantity) => curveChart(inside, quantity)))),
    curvesCaption(series),
  ];
}

function curveChart(series, quantity) {
  const { word, log } = QUANTITIES[quantity];
  const there = series.filter((one) => one.curves[state.axis][quantity]);
  return {
    lines: there.map((one) => lineFor(one, one.curves[state.axis][quantity], series)),
    xLabel: AXES[state.axis].label,
    yLabel: word,
    logY: log && there.every((one) => positive(one.curves[state.axis][quantity])),
    reference: quantity === "test_accuracy" ? { y: data.target, label: `target, ${format(data.target)} %` } : null,
    range: state.range,
    onZoom: (range) => change({ range }),
  };
}

// Whether a line and its trials have a place on a logarithmic axis.
function positive(line) {
  const drawn = [...line.mean, ...(line.low.length ? [line.limits[0]] : [])].filter(isNumber);
  return drawn.length > 0 && drawn.every((value) => value > 0);
}

function axisControl() {
  const options = Object.entries(AXES).map(([name, { word }]) =>
    element(
      "label",
      {},
      element("input", {
        type: "radio",
        name: "axis",
        value: name,
        checked: state.axis === name,
        on: { change: () => change({ axis: name, range: null }, `input[name="axis"][value="${name}"]`) },
      }),
      element("span", {}, word),
    ),
  );
  const reset = state.range
    ? element(
        "button",
        { type: "button", id: "whole-range", on: { click: () => change({ range: null }) } },
        "Whole range",
      )
    : null;
  return element(
    "div",
    { class: "bar no-print" },
    element("fieldset", { class: "segments" }, element("legend", {}, "Horizontal axis"), ...options),
    reset,
    element("span", { class: "hint" }, "Drag across a chart to zoom; arrow keys move the cursor."),
  );
}

function curvesCaption(series) {
  const words = [];
  if (series.some((one) => one.trials > 1))
    words.push(`Lines are means over the trials that did not diverge, bands ${SPREADS[data.spread]}.`);
  if (series.some((one) => one.diverged === one.trials)) words.push("Thin lines diverged.");
  return words.length ? element("p", { class: "caption" }, words.join(" ")) : null;
}

// ------------------------------------------------------------------------------------------------ step sizes

function sensitivityPanel(all) {
  const series = all.filter(
    (one) => !one.states.some((entry) => ["running", "failed", "stopped"].includes(entry.word)),
  );
  const several = series.some((one) => series.some((other) => alikeButStep(one, other)));
  if (!several && data.notes.length)
    return [notice("Each method has the step size that was tuned; the tuning runs are not shown.")];
  if (!several)
    return [notice("Each method was run at one step size. Sweep over method.step_size to see how sensitive it is.")];
  const measured = ["accuracy", "loss"].filter((quantity) => series.some((one) => one[quantity]));
  return [
    ...perRow(series, (inside) => pair(measured.map((quantity) => stepChart(inside, quantity)))),
    element(
      "p",
      { class: "caption" },
      `Final quality: mean over the trials that did not diverge, whiskers ${SPREADS[data.spread]}. ` +
        "Crosses on top: step sizes at which all trials (bold) or some (thin) diverged.",
    ),
  ];
}

function alikeButStep(one, other) {
  return (
    one.label === other.label &&
    one.row === other.row &&
    one.remark === other.remark &&
    one.step_size !== other.step_size
  );
}

function stepChart(series, quantity) {
  const keys = [...new Set(series.map((one) => `${one.label}\n${one.remark}`))];
  const groups = keys.map((key) =>
    series.filter((one) => `${one.label}\n${one.remark}` === key).sort((one, other) => one.step_size - other.step_size),
  );
  const lines = groups.map((group, index) => stepLine(group, quantity, 4 * (index - (groups.length - 1) / 2)));
  return {
    lines,
    xLabel: "step size α",
    logX: true,
    whiskers: true,
    yLabel: quantity === "accuracy" ? "final test accuracy (%)" : "final training loss",
    logY: quantity === "loss" && lines.filter((line) => line.mean.length).every(positive),
    range: limits(series.map((one) => one.step_size)),
    tops: series
      .filter((one) => one.diverged)
      .map((one) => ({
        x: one.step_size,
        colour: one.colour,
        all: one.diverged === one.trials,
        shift: 7 * (keys.indexOf(`${one.label}\n${one.remark}`) - (keys.length - 1) / 2),
        text: `${fullName(one)}: ${one.diverged} of ${one.trials} diverged`,
      })),
  };
}

// Methods are shifted slightly, so that no whisker hides another.
function stepLine(group, quantity, shift) {
  const there = group.filter((one) => one[quantity]);
  const several = there.some((one) => one.trials > 1);
  const first = group[0];
  return {
    x: there.map((one) => one.step_size),
    mean: there.map((one) => one[quantity].mean),
    low: several ? there.map((one) => endsOf(one[quantity])[0] ?? one[quantity].mean) : [],
    high: several ? there.map((one) => endsOf(one[quantity])[1] ?? one[quantity].mean) : [],
    limits: limits(there.flatMap((one) => [one[quantity].minimum, one[quantity].maximum])),
    colour: first.colour,
    dash: dashOf(first),
    marker: markerOf(first),
    label: first.label,
    name: [first.label, first.remark].filter(Boolean).join(", "),
    opacity: 1,
    faded: false,
    shift,
  };
}
