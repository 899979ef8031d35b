"use strict";
// One run in detail: status, diagnosis, timeline, participation, provenance.

function runPanel() {
  const list = data.details;
  if (!list.length) return [notice("No run can be shown in detail.")];
  const detail = list[Math.min(state.run, list.length - 1)];
  return [
    list.length > 1 || data.not_detailed ? runChoice(list) : null,
    runStatus(detail),
    section("h3", "Timeline of events", timelineBox(detail)),
    section("h3", "Participation: expected and served", participationStrip(detail)),
    section("h3", "Diagnosis", ...diagnosisBox(detail)),
    section("h3", "Provenance", ...provenanceBox(detail)),
  ];
}

function section(level, title, ...content) {
  return element("div", { class: "part" }, element(level, {}, title), ...content);
}

function runName(detail) {
  const series = data.series[detail.series];
  const setting = data.settings[series.setting];
  const rates = setting.rates.length > 1 ? `, ${setting.rates[series.row]}` : "";
  return `${fullName(series)}${rates}${series.remark.includes("seed") ? "" : `, seed ${detail.seed}`}${data.settings.length > 1 ? ` · ${setting.title}` : ""}`;
}

function runChoice(list) {
  const options = list.map((detail, index) =>
    element("option", { value: index, selected: index === state.run }, runName(detail)),
  );
  const left = data.not_detailed
    ? `${whole(data.not_detailed)} other runs are in the tables and curves only; give their files to see them here.`
    : "";
  return element(
    "div",
    { class: "bar" },
    element(
      "label",
      { class: "choice" },
      "Run ",
      element(
        "select",
        { id: "run-choice", on: { change: (event) => change({ run: Number(event.target.value) }, "#run-choice") } },
        ...options,
      ),
    ),
    left ? element("span", { class: "hint" }, left) : null,
  );
}

function runStatus(detail) {
  const ended = detail.state !== "running";
  return element(
    "p",
    { class: "facts" },
    badge(detail.state, detail.state),
    ` ${detail.reason}${detail.reason ? "; " : ""}${ended ? "ended at" : "seen up to"} ${format(detail.end_s, 5)} s. `,
    element("code", {}, detail.file),
  );
}

function timelineBox(detail) {
  if (!detail.timeline) return notice(detail.no_timeline);
  const box = element("div", { class: "timeline-box" });
  later(() => new TimelineView(box, detail.timeline));
  return box;
}

function diagnosisBox(detail) {
  const good = ["delay-bound", "virtual time"].includes(detail.verdict);
  return [
    element(
      "p",
      { class: "facts", id: "verdict" },
      badge(detail.verdict, good ? "good" : "notable"),
      ` ${detail.advice}`,
    ),
    detail.diagnosis
      ? element("details", {}, element("summary", {}, "All numbers"), element("pre", {}, detail.diagnosis))
      : null,
  ];
}

function provenanceBox(detail) {
  const rows = detail.provenance
    .filter((entry) => entry.value && entry.name !== "command")
    .map((entry) =>
      element("div", {}, element("dt", {}, entry.name.replace("_", " ")), element("dd", {}, entry.value)),
    );
  return [
    ...detail.commands.map((entry) => commandBox(entry)),
    element("dl", { class: "facts-list" }, ...rows),
    element(
      "details",
      {},
      element("summary", {}, "The experiment, as TOML"),
      element("pre", { id: "experiment" }, detail.experiment),
    ),
  ];
}

function commandBox(entry) {
  const text = element("pre", { class: "command", tabindex: 0 }, entry.value);
  const button = element(
    "button",
    { type: "button", class: "no-print", on: { click: () => copy(text, button) } },
    "Copy",
  );
  return element(
    "div",
    { class: "command-box" },
    element("p", { class: "hint" }, entry.name),
    element("div", {}, text, button),
  );
}

async function copy(node, button) {
  try {
    await navigator.clipboard.writeText(node.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(node); // where the browser denies access to the clipboard
    button.textContent = "Selected";
  }
}
