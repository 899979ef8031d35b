"use strict";
// Elements, numbers, scales and the tooltip, for every panel. Text is always inserted as text, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function element(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function shape(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function listen(node, listeners) {
  return fill(node, { on: listeners }, []);
}

// ------------------------------------------------------------------------------------------------ numbers

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function format(value, digits = 4) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size && (size >= 1e7 || size < 1e-4)) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  return value.toLocaleString("en-GB", { maximumSignificantDigits: digits });
}

// A number on an axis: short, as a power of ten where it is far from one.
function tickText(value) {
  const size = Math.abs(value);
  if (!size || (size < 1e5 && size >= 1e-3)) return format(value, 4);
  const power = Math.floor(Math.log10(size) + 1e-9);
  const digit = Number((value / 10 ** power).toPrecision(3));
  const raised = String(power).replace(/./g, (letter) => "⁰¹²³⁴⁵⁶⁷⁸⁹"["0123456789".indexOf(letter)] || "⁻");
  return `${digit === 1 ? "" : `${digit}·`}10${raised}`;
}

// A number with this many decimals; a small value with at least two significant digits.
function fixed(value, decimals) {
  if (!isNumber(value)) return "–";
  if (value && Math.abs(value) < 10 ** (1 - decimals)) return format(value, 2);
  return Math.abs(value) < 1e5
    ? value.toLocaleString("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals })
    : format(value, 3);
}

// A time within a span of this many seconds, with enough decimals to distinguish its parts.
function timeText(value, span) {
  const decimals = Math.min(9, Math.max(0, 4 - Math.floor(Math.log10(span))));
  return value.toLocaleString("en-GB", { maximumFractionDigits: decimals });
}

function whole(value) {
  return isNumber(value) ? Math.round(value).toLocaleString("en-GB") : "–";
}

function plural(count, word) {
  return `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
}

// ------------------------------------------------------------------------------------------------ scales

function linearScale(domain, range) {
  const [low, high] = domain;
  const span = high - low || 1;
  const scale = (value) => range[0] + ((value - low) / span) * (range[1] - range[0]);
  scale.invert = (place) => low + ((place - range[0]) / (range[1] - range[0])) * span;
  scale.ticks = (count) => linearTicks(low, high, count);
  return scale;
}

function logScale(domain, range) {
  const inner = linearScale(domain.map(Math.log10), range);
  const scale = (value) => inner(Math.log10(value));
  scale.invert = (place) => 10 ** inner.invert(place);
  scale.ticks = (count) => logTicks(domain[0], domain[1], count);
  return scale;
}

function linearTicks(low, high, count) {
  const raw = (high - low) / Math.max(count, 1);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  return ticks;
}

// Powers of ten where there are several; 1, 2 and 5 of each where there are few; even steps below that.
function logTicks(low, high, count) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / Math.max(count, 2)));
  const digits = high / low > 150 ? [1] : [1, 2, 5];
  const ticks = [];
  for (let power = first; power <= last; power += every) {
    for (const digit of digits) ticks.push(Number((digit * 10 ** power).toPrecision(6)));
  }
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  return inside.length >= 2 ? inside : linearTicks(low, high, count);
}

// ------------------------------------------------------------------------------------------------ tooltip

const tooltip = {
  node: document.getElementById("tooltip"),

  show(x, y, heading, rows) {
    this.node.replaceChildren(element("strong", {}, heading), ...rows.map((row) => this.row(row)));
    this.node.hidden = false;
    const box = this.node.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
    this.node.style.left = `${Math.max(4, Math.min(left, innerWidth - box.width - 4))}px`;
    this.node.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 4))}px`;
  },

  row([name, value, colour]) {
    const swatch = colour ? element("i", { class: "swatch" }) : null;
    if (swatch) swatch.style.background = inkOf(colour);
    return element("div", {}, element("span", {}, swatch, name), element("b", {}, value));
  },

  hide() {
    this.node.hidden = true;
  },
};

// ------------------------------------------------------------------------------------------------ looks

// Markers and dashes distinguish methods without colour, and the variants of one method, which share a colour.
const DASHES = {
  area: ["", "18 3", "14 3 2 3 2 3"],
  fedbuff: ["9 3", "6 2", "9 7"],
  "as-fedavg": ["9 3 2 3", "9 3 2 3 2 3", "5 2 1 2"],
  "s-fedavg": ["2 3", "1 2", "3 6"],
};
const MARKERS = {
  area: ["circle", "plus", "hexagon"],
  fedbuff: ["square", "saltire", "right"],
  "as-fedavg": ["triangle", "pentagon", "octagon"],
  "s-fedavg": ["diamond", "thin", "left"],
};

function dashOf(series) {
  return ofVariant(DASHES[series.method] ?? ["5 3", "5 3 1 3", "4 5"], series);
}

function markerOf(series) {
  return ofVariant(MARKERS[series.method] ?? ["down", "star", "bowtie"], series);
}

function ofVariant(looks, series) {
  return looks[series.variant % looks.length];
}

// The marker of a series beside its name.
function dotOf(series) {
  const dot = marker(markerOf(series), 6, 6, 4, { fill: inkOf(series.colour) });
  return shape("svg", { width: 12, height: 12, "aria-hidden": "true" }, dot);
}

// Black becomes the text colour, which is light in the dark theme.
function inkOf(colour) {
  return colour.toLowerCase() === "#000000" ? "var(--ink)" : colour;
}

// Corners clockwise from the top at even angles, with distances `radii` from the middle.
function polygon(x, y, radii, size, turn = 0) {
  const corners = radii.map((radius, index) => {
    const angle = turn + (2 * Math.PI * index) / radii.length - Math.PI / 2;
    return `${x + size * radius * Math.cos(angle)},${y + size * radius * Math.sin(angle)}`;
  });
  return `M${corners.join("L")}z`;
}

function marker(kind, x, y, size, attributes) {
  const path = {
    square: `M${x - size},${y - size}h${2 * size}v${2 * size}h${-2 * size}z`,
    triangle: `M${x},${y - size * 1.2}l${size * 1.2},${size * 2.1}h${-size * 2.4}z`,
    down: `M${x},${y + size * 1.2}l${size * 1.2},${-size * 2.1}h${-size * 2.4}z`,
    diamond: `M${x},${y - size * 1.3}l${size * 1.3},${size * 1.3}l${-size * 1.3},${size * 1.3}l${-size * 1.3},${-size * 1.3}z`,
    cross: `M${x - size},${y - size}L${x + size},${y + size}M${x - size},${y + size}L${x + size},${y - size}`,
    right: `M${x - size},${y - size * 1.2}l${size * 2.1},${size * 1.2}l${-size * 2.1},${size * 1.2}z`,
    left: `M${x + size},${y - size * 1.2}l${-size * 2.1},${size * 1.2}l${size * 2.1},${size * 1.2}z`,
    thin: `M${x},${y - size * 1.5}l${size * 0.8},${size * 1.5}l${-size * 0.8},${size * 1.5}l${-size * 0.8},${-size * 1.5}z`,
    bowtie: `M${x - size},${y - size}v${2 * size}l${2 * size},${-2 * size}v${2 * size}z`,
    plus: polygon(x, y, [1.6, 0.6, 1.6, 0.6, 1.6, 0.6, 1.6, 0.6], size),
    saltire: polygon(x, y, [0.6, 1.6, 0.6, 1.6, 0.6, 1.6, 0.6, 1.6], size),
    star: polygon(x, y, [1.4, 0.6, 1.4, 0.6, 1.4, 0.6, 1.4, 0.6, 1.4, 0.6], size),
    pentagon: polygon(x, y, [1, 1, 1, 1, 1], size * 1.2),
    hexagon: polygon(x, y, [1, 1, 1, 1, 1, 1], size * 1.2),
    octagon: polygon(x, y, [1, 1, 1, 1, 1, 1, 1, 1], size * 1.15, Math.PI / 8),
  }[kind];
  return path ? shape("path", { d: path, ...attributes }) : shape("circle", { cx: x, cy: y, r: size, ...attributes });
}
