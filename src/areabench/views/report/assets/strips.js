"use strict";
// Labelled rows, used by several panels, and the panel of staleness.

function strip(label, series, drawing, value) {
  return element(
    "div",
    { class: "strip-row", "data-label": series.label },
    element("div", { class: "strip-label" }, dotOf(series), label),
    drawing,
    element("div", { class: "strip-value" }, value),
  );
}

// A drawing as wide as its box, drawn again when that width changes.
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
  return listen(node, {
    pointermove: (event) => tooltip.show(event.clientX, event.clientY, heading, rows),
    pointerleave: () => tooltip.hide(),
  });
}

function axisBelow(svg, scale, y, label, width) {
  const group = shape("g", { class: "ticks" });
  for (const tick of scale.ticks(Math.max(3, Math.floor(width / 90)))) {
    group.append(
      shape("line", { x1: scale(tick), x2: scale(tick), y1: y, y2: y + 4, class: "tick" }),
      shape("text", { x: scale(tick), y: y + 17, "text-anchor": "middle" }, format(tick)),
    );
  }
  group.append(shape("text", { x: width / 2, y: y + 33, "text-anchor": "middle", class: "title" }, label));
  svg.append(group);
}

function scaleRow(range, label) {
  return element(
    "div",
    { class: "strip-row axis" },
    element("div", { class: "strip-label" }),
    drawing(38, (svg, width) => axisBelow(svg, linearScale(range, [6, width - 14]), 0, label, width), label),
    element("div", { class: "strip-value" }),
  );
}

// ------------------------------------------------------------------------------------------------ staleness

function stalenessPanel(series) {
  const there = series.filter((one) => one.staleness);
  if (!there.length) return [notice(series.length ? "No update was used in these runs." : "No method is switched on.")];
  const most = Math.max(...there.map((one) => one.staleness.width * one.staleness.shares.length), 5);
  return [
    ...perRow(there, (inside) =>
      element(
        "div",
        { class: "strips" },
        ...inside.map((one) => stalenessRow(one, most, inside)),
        scaleRow([-0.5, most - 0.5], "staleness (server steps)"),
      ),
    ),
    element(
      "p",
      { class: "caption" },
      "Share of updates by the number of server steps between the model that a client started from and " +
        "the arrival of its update; each row has its own height, the line marks the mean.",
    ),
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
      const node = shape("rect", {
        x: left,
        y: 44 - height,
        width: Math.max(x((index + 1) * bin - 0.5) - left - 0.6, 0.8),
        height,
        fill: inkOf(series.colour),
        opacity: 0.8,
      });
      const versions = bin === 1 ? `${index}` : `${index * bin} to ${(index + 1) * bin - 1}`;
      svg.append(
        tip(node, fullName(series), [
          ["staleness", `${versions} step${versions === "1" ? "" : "s"}`],
          ["share of updates", `${format(share, 3)} %`],
        ]),
      );
    });
    svg.append(
      shape("line", { x1: 6, x2: width - 14, y1: 44, y2: 44, class: "base" }),
      shape("line", { x1: x(mean), x2: x(mean), y1: 2, y2: 48, class: "mean" }),
    );
  };
  const words = largest ? `mean ${format(mean, 3)}, 95 % ≤ ${p95}, max ${largest}` : "every update is fresh";
  return strip(shortNameWithStep(series, among), series, drawing(50, draw, `${fullName(series)}: ${words}`), words);
}
