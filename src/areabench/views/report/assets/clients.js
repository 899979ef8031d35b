"use strict";
// The clients: updates expected and served, and the labels that each holds.

function participationStrip(detail) {
  const series = data.series[detail.series];
  const part = detail.participation;
  if (!part) return notice("No update has been used yet.");
  const top = Math.max(...part.most, ...part.high.map((value) => value || 0), 1);
  const draw = (svg, width) => {
    const count = part.client.length;
    const x = linearScale([-0.5, count - 0.5], [48, width - 8]);
    const y = linearScale([0, top * 1.05], [150, 8]);
    for (const tick of y.ticks(3)) {
      svg.append(
        shape(
          "g",
          { class: "ticks" },
          shape("line", { x1: 48, x2: width - 8, y1: y(tick), y2: y(tick), class: "grid-line" }),
          shape("text", { x: 42, y: y(tick) + 4, "text-anchor": "end" }, format(tick)),
        ),
      );
    }
    const room = (width - 56) / count;
    part.client.forEach((client, index) =>
      svg.append(...clientBar(part, index, x(index), y, Math.max(room * 0.74, 1), series)),
    );
    clientAxis(svg, part, x, width);
  };
  return element(
    "div",
    {},
    drawing(186, draw, `Updates of each client of ${detail.name}, ${part.short === null ? "" : "expected and "}served`),
    element(
      "p",
      { class: "caption" },
      `Bars: updates used of ${part.group > 1 ? `each group of ${part.group} clients${part.short === null ? "" : ", ordered by expectation"}` : "each client"}. ` +
        expectationWords(part.short),
    ),
  );
}

function expectationWords(short) {
  if (short === null) return "The expected number of updates is not known.";
  const few = short ? `${plural(short, "client")} below that.` : "No client is below that.";
  return `Dashes: expected. Shaded: what chance allows. ${few}`;
}

function clientBar(part, index, x, y, width, series) {
  const known = part.short !== null && isNumber(part.expected[index]);
  const few = known && part.served[index] < part.low[index];
  const name = part.group > 1 ? `from client ${part.client[index]} on` : `client ${part.client[index]}`;
  const rows = [["served", format(part.served[index], 5)]];
  if (known)
    rows.push(
      ["expected", format(part.expected[index], 4)],
      ["chance allows", `${format(part.low[index])} to ${format(part.high[index])}`],
    );
  if (part.group > 1) rows.push(["least, most", `${part.least[index]}, ${part.most[index]}`]);
  const nodes = [
    shape("rect", {
      x: x - width / 2,
      y: y(part.served[index]),
      width,
      height: 150 - y(part.served[index]),
      fill: inkOf(series.colour),
      opacity: few ? 1 : 0.75,
      class: "served",
    }),
  ];
  if (known) {
    nodes.push(
      shape("rect", {
        x: x - width * 0.66,
        y: y(part.high[index]),
        width: width * 1.32,
        height: Math.max(y(part.low[index]) - y(part.high[index]), 1),
        class: "chance",
      }),
      shape("line", {
        x1: x - width * 0.66,
        x2: x + width * 0.66,
        y1: y(part.expected[index]),
        y2: y(part.expected[index]),
        class: "expected",
      }),
    );
  }
  nodes.push(
    tip(shape("rect", { x: x - width * 0.66, y: 8, width: width * 1.32, height: 142, class: "cover" }), name, rows),
  );
  return nodes;
}

function clientAxis(svg, part, x, width) {
  const group = shape(
    "g",
    { class: "ticks" },
    shape("line", { x1: 48, x2: width - 8, y1: 150, y2: 150, class: "base" }),
    shape("text", { x: (48 + width) / 2, y: 183, "text-anchor": "middle", class: "title" }, "client"),
    shape("text", { transform: "translate(11 79) rotate(-90)", "text-anchor": "middle", class: "title" }, "updates"),
  );
  group.append(...clientNames(x, 166, width, part.client));
  svg.append(group);
}

// As many numbers of clients as there is room for, below their places.
function clientNames(x, y, width, clients) {
  const most = clients.length - 1;
  return linearTicks(0, most, Math.min(most, Math.floor(width / 60)) || 1)
    .filter(Number.isInteger)
    .map((index) => shape("text", { x: x(index), y, "text-anchor": "middle" }, String(clients[index])));
}

// ------------------------------------------------------------------------------------------------ labels

function labelsPanel() {
  const found = data.labels.find((labels) => labels.settings.includes(state.setting));
  if (!found) return [notice("No run has a split to show.")];
  if (!found.counts.length) return [notice(`${found.title}: ${found.reason}`)];
  const classes = found.counts[0].length;
  const height = 74 + classes * 20 + 34;
  return [
    drawing(
      height,
      (svg, width) => labelDots(svg, width, found, classes),
      `Samples of each class by client: ${found.title}`,
    ),
    element(
      "p",
      { class: "caption" },
      `${found.title[0].toUpperCase()}${found.title.slice(1)}${found.clients > found.counts.length ? `; the first ${found.counts.length} of ${whole(found.clients)} clients` : ""}. ` +
        "The area of a dot is the number of samples of a class that a client holds; bars: samples of each client. Other seeds have other splits.",
    ),
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
    const bars = shape("rect", {
      x: x(client) - room * 0.36,
      width: Math.max(room * 0.72, 1),
      y: heights(totals[client]),
      height: 58 - heights(totals[client]),
      class: "total",
    });
    svg.append(tip(bars, `client ${client}`, [["samples", whole(totals[client])]]));
    row.forEach((count, label) => {
      if (!count) return;
      const dot = shape("circle", {
        cx: x(client),
        cy: 80 + label * 20,
        r: Math.max(largest * Math.sqrt(count / most), 0.7),
        class: "dot",
      });
      svg.append(
        tip(dot, `client ${client}`, [
          [`class ${label}`, plural(count, "sample")],
          ["of its own", `${format((100 * count) / totals[client], 3)} %`],
        ]),
      );
    });
  });
  for (let label = 0; label < classes; label += Math.ceil(classes / 20))
    ticks.append(shape("text", { x: 40, y: 84 + label * 20, "text-anchor": "end" }, String(label)));
  const bottom = 80 + classes * 20;
  ticks.append(
    ...clientNames(x, bottom + 8, width, [...counts.keys()]),
    shape("text", { x: 42, y: 14, "text-anchor": "end" }, whole(Math.max(...totals))),
    shape("text", { x: (48 + width) / 2, y: bottom + 25, "text-anchor": "middle", class: "title" }, "client"),
    shape(
      "text",
      { transform: `translate(11 ${80 + classes * 9}) rotate(-90)`, "text-anchor": "middle", class: "title" },
      "class",
    ),
    shape("line", { x1: 48, x2: width - 8, y1: 58, y2: 58, class: "base" }),
  );
  svg.append(ticks);
}
