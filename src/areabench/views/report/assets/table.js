"use strict";
// The sortable summary table, and the list of failed and missing runs.

function columns() {
  const many = (pick) => new Set(data.series.map(pick)).size > 1;
  const first = (spread) => (spread ? spread.mean : null);
  return [
    { name: "Method", sort: (one) => one.label, cell: methodCell, left: true, folded: true },
    { name: "Step size α", sort: (one) => one.step_size, cell: (one) => format(one.step_size) },
    many((one) => one.setting) && {
      name: "Setting",
      sort: (one) => one.setting,
      cell: (one) => data.settings[one.setting].differences,
      left: true,
      wide: true,
    },
    many((one) => data.settings[one.setting].rates[one.row]) && {
      name: "Rates",
      sort: (one) => one.row,
      cell: (one) => data.settings[one.setting].rates[one.row],
      left: true,
      folded: true,
    },
    many((one) => one.remark) && { name: "Which", sort: (one) => one.remark, cell: (one) => one.remark, left: true, folded: true },
    { name: "Trials", sort: (one) => one.trials, cell: trialsCell },
    {
      name: "Accuracy %",
      sort: (one) => first(one.accuracy),
      cell: (one) => spreadCell(one.accuracy, 2),
      rank: "accuracy",
    },
    { name: "Loss", sort: (one) => first(one.loss), cell: (one) => spreadCell(one.loss, 3), rank: "loss" },
    { name: `Time to ${format(data.target)} %`, sort: timeOf, cell: timeCell, rank: "rho" },
    { name: "Updates", sort: (one) => one.updates, cell: (one) => whole(one.updates) },
    { name: "Server steps", sort: (one) => one.server_steps, cell: (one) => whole(one.server_steps) },
    {
      name: "Mean staleness",
      sort: (one) => one.staleness && one.staleness.mean,
      cell: (one) => fixed(one.staleness && one.staleness.mean, 2),
    },
    { name: "Status", sort: (one) => one.states[0].word, cell: statusCell, left: true },
    data.series.some((one) => one.verdicts.length) && {
      name: "Verdict",
      sort: (one) => (one.verdicts[0] || {}).word,
      cell: (one) => counts(one.verdicts),
      left: true,
    },
  ].filter(Boolean);
}

function timeOf(one) {
  return mainOutcome(one).kind === "reached" ? one.target_s : null;
}

function timeCell(one) {
  const main = mainOutcome(one);
  if (main.kind === "reached")
    return `${fixed(one.target_s, 1)} s${one.outcomes.length > counted(one).get("reached") ? ` (${counted(one).get("reached")} of ${one.outcomes.length})` : ""}`;
  return main.kind === "not reached" ? `> ${format(main.time_s, 3)} s` : main.kind;
}

function methodCell(one) {
  return element("span", { class: "method", title: one.method }, dotOf(one), one.label);
}

function spreadCell(spread, decimals) {
  if (!spread) return "–";
  const shown = spread.mean < 100 ? decimals : 1;
  const mean = fixed(spread.mean, shown);
  const [low, high] = endsOf(spread);
  if (!isNumber(low) || low === high) return mean;
  return element("span", {}, mean, element("small", {}, ` ${fixed(low, shown)} – ${fixed(high, shown)}`));
}

// Where the interval or the range begins and ends.
function endsOf(spread) {
  return data.spread === "range" ? [spread.minimum, spread.maximum] : [spread.low, spread.high];
}

function trialsCell(one) {
  return one.planned > one.trials ? `${one.trials} of ${one.planned}` : String(one.trials);
}

function counts(entries) {
  return entries.map(({ word, count }) => (entries.length > 1 || count > 1 ? `${count} ${word}` : word)).join(", ");
}

function statusCell(one) {
  const cell = element("span", {});
  for (const { word, count } of one.states)
    cell.append(badge(count > 1 || one.states.length > 1 ? `${count} ${word}` : word, word));
  if (one.planned > one.trials) cell.append(badge(`${one.planned - one.trials} missing`, "missing"));
  return cell;
}

function badge(text, kind) {
  return element("span", { class: `badge ${kind.replace(" ", "-")}` }, text);
}

// ------------------------------------------------------------------------------------------------ summary

function summaryPanel() {
  if (!data.series.length) return [notice("No run of this sweep has ended.")];
  const list = columns();
  const shown = data.series.filter((one) => !state.hidden.has(one.label));
  const body = element("tbody", {}, ...sorted(shown, list).map((one) => tableRow(one, list)));
  const table = element(
    "table",
    { id: "summary-table" },
    element("thead", {}, element("tr", {}, ...list.map(headerCell))),
    body,
  );
  return [
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Summary of the runs" }, table),
    summaryCaption(),
    ...data.notes.map((note) => element("p", { class: "caption tuning" }, `${note}.`)),
    data.remarks.length ? element("p", { class: "caption", id: "defaults" }, data.remarks.join(" ")) : null,
  ];
}

function headerCell(column) {
  const direction = state.sort.name === column.name ? state.sort.direction : 0;
  const arrow = { 1: " ▲", "-1": " ▼", 0: "" }[direction];
  const next = direction === 1 ? -1 : 1;
  return element(
    "th",
    {
      scope: "col",
      class: column.left ? "left" : null,
      "data-name": column.name,
      "aria-sort": { 1: "ascending", "-1": "descending" }[direction],
    },
    element(
      "button",
      {
        type: "button",
        "data-column": column.name,
        on: { click: () => change({ sort: { name: column.name, direction: next } }, `[data-column="${column.name}"]`) },
      },
      `${column.name.replace(" %", "\u00a0%")}${arrow}`,
    ),
  );
}

// Rows without a value come last in either direction.
function sorted(series, list) {
  const column = list.find((one) => one.name === state.sort.name);
  if (!column) return series;
  const missing = (value) => value === null || value === undefined;
  return [...series].sort((one, other) => {
    const [first, second] = [column.sort(one), column.sort(other)];
    if (missing(first) || missing(second)) return missing(first) - missing(second);
    return state.sort.direction * (typeof first === "string" ? first.localeCompare(second) : first - second);
  });
}

function tableRow(one, list) {
  return element(
    "tr",
    { title: one.files.join("\n") },
    ...list.map((column) => {
      const classes = [
        column.left && "left",
        column.wide && "wide",
        column.folded && "folded",
        column.rank && one.ranks[column.rank].mark,
      ].filter(Boolean);
      const title = column.rank ? rankWords(one.ranks[column.rank]) : null;
      return element("td", { class: classes.join(" ") || null, title }, column.cell(one));
    }),
  );
}

function summaryCaption() {
  const words = ["Accuracy and loss are those at the end of a run."];
  if (data.series.some((one) => one.trials > 1))
    words.push(
      "Bold: the best for its rates and setting, and all others are outside the noise. Underlined: tied, that is with the best mean " +
        "or not outside the noise around it. Rows with a missing or diverged trial are not compared.",
      `Means over trials, with ${SPREADS[data.spread]} in small print; diverged, failed and missing runs are never averaged in. ` +
        "Times are medians, in which trials that did not reach the target count as later than the others.",
    );
  return element("p", { class: "caption" }, words.join(" "));
}

// ------------------------------------------------------------------------------------------------ failed, missing

function absentPanel() {
  const rows = data.absent.map((one) =>
    element(
      "tr",
      {},
      element("td", { class: "left" }, badge(one.state, one.state)),
      element("td", { class: "left" }, one.what),
      element("td", { class: "left wide" }, one.reason),
      element("td", { class: "left" }, element("code", {}, one.file)),
    ),
  );
  const heads = ["State", "Run", "Why", "File"].map((word) =>
    element("th", { scope: "col", class: "left" }, element("span", {}, word)),
  );
  return [
    element(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs without a result" },
      element(
        "table",
        { id: "absent-table" },
        element("thead", {}, element("tr", {}, ...heads)),
        element("tbody", {}, ...rows),
      ),
    ),
    element(
      "p",
      { class: "caption" },
      "These planned runs have no result. No mean, bar or curve of this page includes them.",
    ),
  ];
}
