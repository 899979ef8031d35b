"use strict";
// The cursor of a chart, by pointer or arrow keys, with a tooltip of exact values; zoom by dragging.

function follow(svg, chart, lines, scales, frame) {
  const cursor = shape("line", { class: "cursor", y1: frame.top, y2: frame.bottom, visibility: "hidden" });
  const selection = shape("rect", {
    class: "selection",
    y: frame.top,
    height: frame.bottom - frame.top,
    visibility: "hidden",
  });
  const cover = shape("rect", {
    x: frame.left,
    y: 0,
    width: frame.right - frame.left,
    height: frame.bottom,
    class: chart.onZoom ? "cover zoomable" : "cover",
  });
  const xs = [...new Set(lines.flatMap((line) => line.x))]
    .sort((one, other) => one - other)
    .filter((x) => x >= scales.extent[0] && x <= scales.extent[1]);
  let from = null;
  let at = -1;

  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * frame.width;
  };
  const point = (x, clientX, clientY) => {
    cursor.setAttribute("x1", scales.x(x));
    cursor.setAttribute("x2", scales.x(x));
    cursor.setAttribute("visibility", "visible");
    tooltip.show(
      clientX,
      clientY,
      `${format(x, 5)} · ${chart.xLabel}`,
      lines.map((line) => tipRow(line, x, chart)).filter(Boolean),
    );
  };
  const leave = () => {
    cursor.setAttribute("visibility", "hidden");
    tooltip.hide();
  };
  const move = (event) => {
    const there = place(event);
    if (from !== null) {
      selection.setAttribute("x", Math.min(from, there));
      selection.setAttribute("width", Math.abs(there - from));
      selection.setAttribute("visibility", "visible");
    }
    if (xs.length) {
      at = nearest(xs, scales.x.invert(there));
      point(xs[at], event.clientX, event.clientY);
    }
  };
  const release = (event) => {
    const [begin, end] = [from, place(event)].sort((one, other) => one - other);
    const dragged = from !== null && end - begin > 12;
    from = null;
    selection.setAttribute("visibility", "hidden");
    if (dragged && chart.onZoom)
      chart.onZoom([
        Math.max(scales.extent[0], scales.x.invert(begin)),
        Math.min(scales.extent[1], scales.x.invert(end)),
      ]);
  };
  listen(cover, {
    pointermove: move,
    pointerleave: leave,
    pointerup: release,
    pointerdown: (event) => {
      if (!chart.onZoom || event.pointerType !== "mouse") return;
      cover.setPointerCapture(event.pointerId);
      from = place(event);
    },
  });
  const press = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step || !xs.length) return;
    event.preventDefault();
    at = Math.min(xs.length - 1, Math.max(0, at + step));
    const box = svg.getBoundingClientRect();
    point(xs[at], box.left + (scales.x(xs[at]) / frame.width) * box.width, box.top + 20);
  };
  listen(svg, { keydown: press, blur: leave });
  svg.append(cursor, selection, cover);
}

function tipRow(line, x, chart) {
  const index = nearest(line.x, x);
  const apart = Math.abs(line.x[index] - x);
  const typical = line.x.length > 1 ? (line.x[line.x.length - 1] - line.x[0]) / (line.x.length - 1) : Infinity;
  if (chart.logX ? apart > 1e-9 * x : apart > Math.max(typical, 1e-12) && line.x.length > 1) return null;
  const range = line.low.length ? ` (${format(line.low[index])} – ${format(line.high[index])})` : "";
  return [line.name, `${format(line.mean[index], 5)}${range}`, line.colour];
}

// The position of the number nearest to a value among ascending numbers.
function nearest(values, value) {
  let low = 0;
  let high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle;
    else high = middle;
  }
  return Math.abs(values[high] - value) < Math.abs(values[low] - value) ? high : low;
}
