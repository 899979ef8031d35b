"use strict";
// The page: what is chosen, and the panels that show it.

const views = { window: null }; // a timeline keeps its window when it is drawn again
const state = {
  setting: 0,
  hidden: new Set(),
  steps: {},
  axis: "time",
  range: null,
  run: 0,
  sort: { name: "", direction: 1 },
  theme: "auto",
};
const PANELS = [
  { id: "summary", title: "Summary", draw: () => summaryPanel() },
  {
    id: "differences",
    title: "Differences from the best",
    draw: () => differencesPanel(ofSetting()),
    when: () => data.series.some((one) => one.trials > 1),
  },
  { id: "absent", title: "Failed and missing runs", draw: () => absentPanel(), when: () => data.absent.length },
  { id: "curves", title: "Accuracy and loss", draw: () => curvesPanel(shown()) },
  { id: "target", title: "Time to target", draw: () => targetPanel(shown()) },
  {
    id: "reached",
    title: "Trials that reached the target",
    draw: () => reachedPanel(shown()),
    when: () => data.series.some((one) => one.reached && one.trials > 1),
  },
  { id: "profile", title: "Performance profile", draw: () => profilePanel(), when: () => data.profile.length },
  { id: "sensitivity", title: "Step-size sensitivity", draw: () => sensitivityPanel(ofSetting()) },
  { id: "staleness", title: "Staleness", draw: () => stalenessPanel(shown()) },
  { id: "run", title: "One run", draw: () => runPanel() },
  { id: "labels", title: "Label distribution", draw: () => labelsPanel() },
].filter((panel) => !panel.when || panel.when());

// Panels that a change does not concern keep their state.
const SHOWN = ["controls", "curves", "target", "reached", "staleness"];
const CONCERNS = {
  sort: ["summary"],
  run: ["run"],
  axis: ["curves"],
  range: ["curves"],
  steps: SHOWN,
  hidden: [...SHOWN, "summary", "differences", "profile", "sensitivity"],
  setting: [...SHOWN, "differences", "sensitivity", "labels"],
};
const EVERYTHING = new Set(["controls", ...PANELS.map((panel) => panel.id)]);

// ------------------------------------------------------------------------------------------------ what is shown

function ofSetting() {
  return data.series.filter((one) => one.setting === state.setting && !state.hidden.has(one.label));
}

const MANY = 8; // from this number of series per rates setting on, each method is shown at its best step size only

function stepsOf(label) {
  const here = data.series.filter((one) => one.setting === state.setting);
  const crowded = [...new Set(here.map((one) => one.row))].some(
    (row) => here.filter((one) => one.row === row).length > MANY,
  );
  return state.steps[label] ?? (crowded ? "best" : "all");
}

function shown() {
  return ofSetting().filter((one) => {
    const choice = stepsOf(one.label);
    return choice === "all" || (choice === "best" ? one.is_best : one.step_size === Number(choice));
  });
}

// ------------------------------------------------------------------------------------------------ drawing

// Charts are as wide as their box, whose width is known only once they are in the page.
let pending = [];

function later(draw) {
  pending.push(draw);
}

function settle() {
  for (const draw of pending) draw();
  pending = [];
}

function notice(text) {
  return element("p", { class: "notice" }, text);
}

function change(changes, focus) {
  Object.assign(state, changes);
  tooltip.hide();
  render(new Set(Object.keys(changes).flatMap((name) => CONCERNS[name])));
  if (focus) (document.querySelector(focus) || { focus() {} }).focus();
}

function render(only = EVERYTHING) {
  for (const panel of PANELS) {
    if (only.has(panel.id))
      document.querySelector(`#${panel.id} .content`).replaceChildren(...panel.draw().filter(Boolean));
  }
  if (only.has("controls")) document.getElementById("controls").replaceChildren(...controls());
  settle();
}

// ------------------------------------------------------------------------------------------------ controls

function controls() {
  const labels = [...new Set(data.series.filter((one) => one.setting === state.setting).map((one) => one.label))];
  return [
    settingChoice(),
    labels.length
      ? element("div", { class: "legend", role: "group", "aria-label": "Methods" }, ...labels.map(chip))
      : null,
  ].filter(Boolean);
}

function settingChoice() {
  if (data.settings.length < 2) return null;
  const options = data.settings.map((setting, index) =>
    element("option", { value: index, selected: index === state.setting }, setting.title),
  );
  return element(
    "label",
    { class: "choice" },
    "Setting ",
    element(
      "select",
      {
        id: "setting-choice",
        on: { change: (event) => change({ setting: Number(event.target.value), range: null }, "#setting-choice") },
      },
      ...options,
    ),
  );
}

function chip(label) {
  const all = data.series.filter((one) => one.setting === state.setting && one.label === label);
  const series = all[0];
  const sample = shape(
    "svg",
    { width: 30, height: 12, "aria-hidden": "true" },
    shape("path", {
      d: "M0,6H30",
      stroke: inkOf(series.colour),
      "stroke-width": 2,
      "stroke-dasharray": dashOf(series) || null,
    }),
    marker(markerOf(series), 15, 6, 3.6, { fill: inkOf(series.colour) }),
  );
  const button = element(
    "button",
    {
      type: "button",
      class: "chip",
      "aria-pressed": String(!state.hidden.has(label)),
      "data-method": label,
      title: series.method,
      on: { click: () => toggle(label) },
    },
    sample,
    label,
  );
  return element("span", { class: "chip-box" }, button, stepChoice(label, all));
}

function toggle(label) {
  const hidden = new Set(state.hidden);
  if (!hidden.delete(label)) hidden.add(label);
  change({ hidden }, `[data-method="${CSS.escape(label)}"]`);
}

function stepChoice(label, all) {
  const sizes = [...new Set(all.map((one) => one.step_size))].sort((one, other) => one - other);
  if (sizes.length < 2) return element("span", { class: "chip-step" }, `α = ${format(sizes[0])}`);
  const choice = String(stepsOf(label));
  const best = [...new Set(all.filter((one) => one.is_best).map((one) => format(one.step_size)))].join(", ");
  const options = [
    ["best", `best α (${best})`],
    ["all", "all α"],
    ...sizes.map((size) => [String(size), `α = ${format(size)}`]),
  ];
  return element(
    "select",
    {
      class: "chip-step",
      "aria-label": `Step size of ${label}`,
      "data-steps": label,
      on: {
        change: (event) =>
          change({ steps: { ...state.steps, [label]: event.target.value } }, `[data-steps="${CSS.escape(label)}"]`),
      },
    },
    ...options.map(([value, text]) => element("option", { value, selected: value === choice }, text)),
  );
}

// ------------------------------------------------------------------------------------------------ theme and print

function nextTheme() {
  const dark = state.theme === "dark" || (state.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  state.theme = dark ? "light" : "dark";
  document.documentElement.dataset.theme = state.theme;
  render();
}

// Print is light, as wide as the paper, and shows everything, independent of the screen.
function beforePrint() {
  document.documentElement.classList.add("printing");
  render();
  for (const node of document.querySelectorAll("details")) node.open = true;
}

function afterPrint() {
  document.documentElement.classList.remove("printing");
  render();
}

// ------------------------------------------------------------------------------------------------ start

function header() {
  const settings =
    data.settings.length === 1
      ? element(
          "p",
          { class: "subtitle" },
          data.settings[0].title + (data.settings[0].rates.length === 1 ? `, rates ${data.settings[0].rates[0]}` : ""),
        )
      : null;
  return element(
    "header",
    {},
    element(
      "div",
      {},
      element("p", { class: "brand" }, "areabench report"),
      element("h1", {}, data.title),
      element("p", { class: "subtitle" }, data.subtitle),
      settings,
    ),
    element(
      "button",
      { type: "button", id: "theme", class: "no-print", "aria-label": "Light or dark", on: { click: nextTheme } },
      "◐",
    ),
  );
}

function build() {
  const links = PANELS.map((panel) => element("a", { href: `#${panel.id}` }, panel.title));
  document
    .getElementById("page")
    .replaceChildren(
      element("a", { class: "skip", href: "#summary" }, "Skip to the summary"),
      header(),
      element("nav", { class: "no-print", "aria-label": "Panels" }, ...links),
      element("div", { id: "controls" }),
      element(
        "main",
        {},
        ...PANELS.map((panel) =>
          element(
            "section",
            { id: panel.id, "aria-label": panel.title },
            element("h2", {}, panel.title),
            element("div", { class: "content" }),
          ),
        ),
      ),
      element("footer", {}, `areabench ${data.version}. This page contains its data and loads nothing.`),
    );
  render();
}

let lastWidth = innerWidth;
let waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === lastWidth) return;
  lastWidth = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(() => render(), 120);
});
addEventListener("beforeprint", beforePrint);
addEventListener("afterprint", afterPrint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => render());
build();
