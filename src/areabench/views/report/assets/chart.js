"use strict";
// One chart of lines: axes, bands, markers, labels at the ends, a cursor that shows exact values, zoom by dragging.

// chart: { lines, xLabel, yLabel, logX, logY, reference, range, onZoom, whiskers, tops, wholeX, wholeY }
// line: { x, mean, low, high, limits, colour, dash, marker, label, name, opacity, faded, shift }; the shift in pixels
function lineChart(container, chart) {
  const width = Math.max(260, container.clientWidth || 520);
  const height = Math.round(Math.min(320, Math.max(220, width * 0.56)));
  const lines = chart.lines.filter((line) => line.x.length);
  const texts = lines.map((line) => wrapped(line.label, LABEL_LETTERS));
  const beside = 22 + 6.9 * Math.max(0, ...texts.flat().map((text) => text.length));
  const fits = texts.every((rows) => rows.length <= 2) && 14 * texts.flat().length <= height - 52;
  const labelled = width >= 430 && !chart.whiskers && fits && beside <= 0.32 * width;
  const room = labelled ? beside : 14;
  const strip = chart.tops && chart.tops.length ? 20 : 0;
  const frame = { left: 60, right: width - room, top: 12 + strip, bottom: height - 40, width, height, strip };
  const scales = scalesOf(chart, lines, frame);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`,
    class: "chart",
    role: "img",
    tabindex: 0,
    "aria-label": `${chart.yLabel} over ${chart.xLabel}: ${lines.map((line) => line.name).join("; ")}`,
  });
  drawAxes(svg, chart, scales, frame);
  drawLines(svg, chart, lines, scales, frame);
  if (chart.reference) drawReference(svg, chart.reference, scales, frame);
  if (labelled) drawLabels(svg, lines, scales, frame, chart.range);
  drawTops(svg, chart, scales, frame);
  follow(svg, chart, lines, scales, frame);
  container.replaceChildren(svg, ...(labelled || chart.whiskers || lines.length < 2 ? [] : [keyOf(lines)]));
}

// The names of the lines, where there is no room beside them.
function keyOf(lines) {
  const entries = lines.map((line) => {
    const sample = shape(
      "svg",
      { width: 24, height: 12, "aria-hidden": "true" },
      shape("path", {
        d: "M0,6H24",
        stroke: inkOf(line.colour),
        "stroke-width": 2,
        "stroke-dasharray": line.dash || null,
        opacity: line.opacity || 1,
      }),
      marker(line.marker, 12, 6, 3.2, { fill: inkOf(line.colour), opacity: line.opacity || 1 }),
    );
    return element("span", { class: "key" }, sample, ` ${line.label}`);
  });
  return element("p", { class: "caption keys" }, ...entries);
}

// ------------------------------------------------------------------------------------------------ scales, axes

function scalesOf(chart, lines, frame) {
  const solid = lines.filter((line) => !line.faded);
  const extent =
    chart.range || limits((solid.length ? solid : lines).flatMap((line) => [line.x[0], line.x[line.x.length - 1]]));
  const seen = valuesWithin(solid.length ? solid : lines, extent, chart);
  let [low, high] = chart.wholeY || limits(seen);
  if (chart.logY && !(low > 0)) [low, high] = [0.1, 1]; // nothing is in view
  if (chart.reference && !chart.logY)
    [low, high] = [Math.min(low, chart.reference.y), Math.max(high, chart.reference.y)];
  const x = chart.logX
    ? logScale([extent[0] / 2, extent[1] * 2], [frame.left, frame.right])
    : linearScale(extent, [frame.left, frame.right]);
  const y = chart.logY
    ? logScale([low / 1.08, high * 1.08], [frame.bottom, frame.top])
    : linearScale([low - 0.04 * (high - low || 1), high + 0.04 * (high - low || 1)], [frame.bottom, frame.top]);
  return { x, y, extent };
}

function limits(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

function valuesWithin(lines, extent, chart) {
  const inside = (line) => (value, index) =>
    isNumber(value) && (!chart.logY || value > 0) && line.x[index] >= extent[0] && line.x[index] <= extent[1];
  // A band widens the axis no further than the trials go.
  const within = (line) => (value) => Math.min(Math.max(value, line.limits[0]), line.limits[1]);
  return lines.flatMap((line) => [
    ...line.mean.filter(inside(line)),
    ...[line.low, line.high].flatMap((values) => values.map(within(line)).filter(inside(line))),
  ]);
}

function drawAxes(svg, chart, scales, frame) {
  const grid = shape("g", { class: "grid" });
  const words = shape("g", { class: "ticks" });
  for (const tick of scales.y.ticks(5)) {
    const y = scales.y(tick);
    grid.append(shape("line", { x1: frame.left, x2: frame.right, y1: y, y2: y }));
    words.append(shape("text", { x: frame.left - 7, y: y + 4, "text-anchor": "end" }, tickText(tick)));
  }
  for (const tick of scales.x.ticks(Math.max(3, Math.floor((frame.right - frame.left) / (chart.logX ? 45 : 80))))) {
    const x = scales.x(tick);
    grid.append(shape("line", { x1: x, x2: x, y1: frame.bottom, y2: frame.bottom + 4, class: "tick" }));
    words.append(shape("text", { x, y: frame.bottom + 17, "text-anchor": "middle" }, tickText(tick)));
  }
  grid.append(shape("line", { x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom, class: "base" }));
  words.append(
    shape(
      "text",
      { x: (frame.left + frame.right) / 2, y: frame.height - 5, "text-anchor": "middle", class: "title" },
      chart.xLabel,
    ),
    shape(
      "text",
      {
        transform: `translate(12 ${(frame.top + frame.bottom) / 2}) rotate(-90)`,
        "text-anchor": "middle",
        class: "title",
      },
      chart.yLabel,
    ),
  );
  svg.append(grid, words);
}

function drawReference(svg, reference, scales, frame) {
  const y = scales.y(reference.y);
  if (!(y >= frame.top && y <= frame.bottom)) return;
  svg.append(
    shape("line", { x1: frame.left, x2: frame.right, y1: y, y2: y, class: "reference" }),
    shape("text", { x: frame.left + 6, y: y - 5, class: "reference-label" }, reference.label),
  );
}

// ------------------------------------------------------------------------------------------------ lines

let clips = 0;

function drawLines(svg, chart, lines, scales, frame) {
  const clip = `clip${(clips += 1)}`;
  svg.append(
    shape(
      "clipPath",
      { id: clip },
      shape("rect", {
        x: frame.left - 6,
        y: frame.top - 6,
        width: frame.right - frame.left + 12,
        height: frame.bottom - frame.top + 8,
      }),
    ),
  );
  const inside = shape("g", { "clip-path": `url(#${clip})` });
  lines.forEach((line) => inside.append(...(chart.whiskers ? whiskers(line, scales, chart) : band(line, scales, chart))));
  lines.forEach((line, index) => inside.append(lineOf(line, scales, index / lines.length, chart)));
  svg.append(inside);
}

function lineOf(line, scales, shift, chart) {
  const look = {
    fill: "none",
    stroke: inkOf(line.colour),
    "stroke-width": line.faded ? 1.2 : 2,
    opacity: line.opacity || 1,
  };
  const group = shape("g", { class: "series", "data-label": line.label });
  group.append(shape("path", { d: pathOf(line, scales, chart), "stroke-dasharray": line.dash || null, ...look }));
  const marks = line.x.length <= 15 || chart.whiskers ? 1 : Math.floor(line.x.length / 7);
  for (let index = marks > 1 ? Math.floor(shift * marks) : 0; index < line.x.length; index += marks) {
    if (!line.marker || !isNumber(line.mean[index]) || (chart.logY && line.mean[index] <= 0)) continue;
    group.append(
      marker(line.marker, scales.x(line.x[index]) + (line.shift || 0), scales.y(line.mean[index]), 3.2, {
        fill: inkOf(line.colour),
        class: "mark",
        opacity: line.opacity || 1,
      }),
    );
  }
  return group;
}

function pathOf(line, scales, chart) {
  let path = "";
  let pen = "M";
  line.mean.forEach((value, index) => {
    if (!isNumber(value) || (chart.logY && value <= 0)) {
      pen = "M";
      return;
    }
    path += `${pen}${(scales.x(line.x[index]) + (line.shift || 0)).toFixed(1)},${scales.y(value).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

function band(line, scales, chart) {
  if (!line.low.length) return [];
  const onAxis = (value) => scales.y(chart.logY ? Math.max(value, line.limits[0] / 10) : value);
  const points = (values) =>
    values.map((value, index) => `${scales.x(line.x[index]).toFixed(1)},${onAxis(value).toFixed(1)}`);
  const outline = [...points(line.high), ...points(line.low).reverse()];
  return [shape("path", { d: `M${outline.join("L")}z`, fill: inkOf(line.colour), opacity: 0.16 })];
}

function whiskers(line, scales, chart) {
  if (!line.low.length) return [];
  const onAxis = (value) => scales.y(chart.logY ? Math.max(value, line.limits[0] / 10) : value);
  return line.x.map((x, index) =>
    shape("path", {
      d: `M${scales.x(x) + (line.shift || 0)},${onAxis(line.low[index])}V${onAxis(line.high[index])}`,
      stroke: inkOf(line.colour),
      "stroke-width": 1.3,
      fill: "none",
    }),
  );
}

// Names at the ends of the lines, moved apart where they would overlap.
function drawLabels(svg, lines, scales, frame, range) {
  const places = lines
    .map((line) => {
      const inside = line.x
        .map((x, index) => index)
        .filter((index) => isNumber(line.mean[index]) && (!range || line.x[index] <= range[1]));
      const last = inside[inside.length - 1] ?? 0;
      return {
        line,
        y: Math.min(frame.bottom, Math.max(frame.top, scales.y(line.mean[last]))) || frame.top,
        rows: wrapped(line.label, LABEL_LETTERS),
      };
    })
    .sort((one, other) => one.y - other.y);
  places.forEach((place, index) => {
    if (index) place.y = Math.max(place.y, places[index - 1].y + 14 * places[index - 1].rows.length);
  });
  for (let index = places.length - 1, most = frame.bottom + 14; index >= 0; index -= 1) {
    most -= 14 * places[index].rows.length;
    places[index].y = Math.min(places[index].y, most);
  }
  for (const { line, y, rows } of places) {
    const words = rows.map((row, index) => shape("tspan", { x: frame.right + 8, dy: index ? 14 : 0 }, row));
    svg.append(shape("text", { y: y + 4, class: "end-label", fill: inkOf(line.colour) }, ...words));
  }
}

const LABEL_LETTERS = 20; // in a row of a label beside the lines

// A text in rows of at most so many letters, unless a word is longer; ` = ` does not end a row.
function wrapped(text, most) {
  const rows = [""];
  for (const word of text.replace(/ = /g, "\u00a0=\u00a0").split(" ")) {
    const last = rows[rows.length - 1];
    if (last && last.length + 1 + word.length > most) rows.push(word);
    else rows[rows.length - 1] = last ? `${last} ${word}` : word;
  }
  return rows;
}

// Step sizes at which trials diverged: crosses above the data.
function drawTops(svg, chart, scales, frame) {
  if (!frame.strip) return;
  svg.append(
    shape("rect", { x: frame.left, y: 2, width: frame.right - frame.left, height: frame.strip, class: "strip" }),
  );
  for (const top of chart.tops) {
    const cross = marker("cross", scales.x(top.x) + (top.shift || 0), 2 + frame.strip / 2, top.all ? 4.5 : 3, {
      stroke: inkOf(top.colour),
      "stroke-width": top.all ? 2.6 : 1.3,
      class: "diverged",
    });
    cross.append(shape("title", {}, top.text));
    svg.append(cross);
  }
}
