"use strict";
// The timeline of events: the server above, a lane a client below. A bar is an update from the client's start to its
// arrival; curves lead from the server step that made its base version to it, and from it to the step that used it.

const LANES = 48; // clients that are drawn at once
const FEW = 70; // updates in view up to which all curves are drawn
const FIRST = 36; // updates in view at first

class TimelineView {
  constructor(box, timeline) {
    this.line = timeline;
    this.first = 0; // client of the first lane
    this.lanes = Math.min(timeline.clients, LANES);
    this.whole = [0, Math.max(timeline.until_s - timeline.begin_s, 1e-9)];
    const early = timeline.end_s[Math.min(box.clientWidth < 500 ? FIRST / 2 : FIRST, timeline.end_s.length) - 1];
    this.view = [0, Math.min(this.whole[1], early || this.whole[1])];
    this.stepOf = new Map(timeline.version.map((version, index) => [version, timeline.step_s[index]]));
    this.stalest = Math.max(1, ...timeline.staleness);
    this.picked = -1;
    this.canvas = element("canvas", { class: "timeline", tabindex: 0, role: "img", "aria-label": this.describe() });
    this.map = element("canvas", { class: "overview", "aria-hidden": "true" });
    this.where = element("output", { class: "hint", id: "timeline-where" });
    box.replaceChildren(this.tools(), this.canvas, this.map, this.key());
    this.listen();
    this.draw();
  }

  describe() {
    const line = this.line;
    return `Timeline: ${plural(line.shown, "update")} of ${plural(line.clients, "client")}, from ${format(line.begin_s)} s to `
      + `${format(line.until_s)} s. Arrow keys move, plus and minus zoom, 0 shows all, shift and arrow keys go from update to update.`;
  }

  tools() {
    const button = (text, label, action) => element("button", { type: "button", "aria-label": label, title: label, on: { click: action } }, text);
    const pages = Math.ceil(this.line.clients / LANES);
    const choice = pages < 2 ? null : element("select", { "aria-label": "Clients shown", on: { change: (event) => this.turn(Number(event.target.value)) } },
      ...Array.from({ length: pages }, (_, page) => element("option", { value: page },
        `clients ${page * LANES}–${Math.min((page + 1) * LANES, this.line.clients) - 1}`)));
    return element("div", { class: "bar no-print" }, element("div", { class: "buttons" },
      button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)),
      button("←", "Earlier", () => this.pan(-0.5)), button("→", "Later", () => this.pan(0.5)),
      button("All", "Show the whole window", () => this.show([...this.whole]))), choice, this.where);
  }

  turn(page) {
    this.first = page * LANES;
    this.lanes = Math.min(LANES, this.line.clients - this.first);
    this.draw();
  }

  key() {
    const scale = element("span", { class: "ramp", "aria-hidden": "true" });
    const line = this.line;
    const part = line.shown < line.of || line.begin_s > 0 ? ` Shown: ${whole(line.shown)} of ${whole(line.of)} updates, ${format(line.begin_s)} s to ${format(line.until_s)} s of ${format(line.run_s)} s.` : "";
    return element("p", { class: "caption" }, "Squares: the server steps to a new version. Bars: a client computes, from the version written in them; "
      + "a curve down comes from the step that made that version, a curve up leads to the step that used the update. ",
      element("span", { class: "key" }, "Staleness 0 ", scale, ` ${this.stalest}`), ` Outlined: not used.${part} Drag to move, Ctrl and wheel to zoom.`);
  }

  // ---------------------------------------------------------------------------------------------- moving

  show([from, to]) {
    const length = Math.min(Math.max(to - from, this.whole[1] * 1e-5), this.whole[1]);
    const last = this.whole[1] - length;
    const start = from < this.whole[1] * 1e-9 || last < this.whole[1] * 1e-9 ? 0 : Math.min(from, last);
    this.view = [start, start + length];
    this.draw();
  }

  zoom(factor, at = (this.view[0] + this.view[1]) / 2) {
    this.show([at - (at - this.view[0]) * factor, at + (this.view[1] - at) * factor]);
  }

  pan(share) {
    const by = share * (this.view[1] - this.view[0]);
    this.show([this.view[0] + by, this.view[1] + by]);
  }

  listen() {
    const pointers = new Map();
    const on = (node, listeners) => fill(node, { on: listeners }, []);
    on(this.canvas, {
      wheel: (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.x.invert(event.offsetX));
      },
      pointerdown: (event) => { pointers.set(event.pointerId, event.offsetX); this.canvas.setPointerCapture(event.pointerId); },
      pointerup: (event) => pointers.delete(event.pointerId),
      pointercancel: (event) => pointers.delete(event.pointerId),
      pointerleave: () => { if (this.picked !== -1) this.pick(-1); tooltip.hide(); },
      pointermove: (event) => (pointers.has(event.pointerId) ? this.drag(pointers, event) : this.hover(event)),
      keydown: (event) => this.press(event),
      blur: () => this.pick(-1),
    });
    const jump = (event) => {
      if (event.type === "pointermove" && !event.buttons) return;
      const middle = (event.offsetX / this.map.clientWidth) * this.whole[1];
      const half = (this.view[1] - this.view[0]) / 2;
      this.show([middle - half, middle + half]);
    };
    on(this.map, { pointerdown: jump, pointermove: jump });
  }

  // One pointer moves the window, two change its length.
  drag(pointers, event) {
    const before = [...pointers.values()];
    const moved = event.offsetX - pointers.get(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    if (before.length === 1) {
      const by = (moved / (this.x(this.view[1]) - this.x(this.view[0]))) * (this.view[1] - this.view[0]);
      this.show([this.view[0] - by, this.view[1] - by]);
    } else {
      const after = [...pointers.values()];
      const factor = Math.abs(before[0] - before[1]) / Math.max(Math.abs(after[0] - after[1]), 1);
      this.zoom(factor, this.x.invert((after[0] + after[1]) / 2));
    }
  }

  press(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const actions = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.show([...this.whole]), Escape: () => this.pick(-1) };
    const action = step ? () => (event.shiftKey ? this.next(step) : this.pan(step * 0.2)) : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  next(step) {
    const index = Math.min(Math.max(this.picked + step, 0), this.line.shown - 1);
    const end = this.line.end_s[index];
    if (end > this.view[1] || this.line.start_s[index] < this.view[0]) {
      const half = (this.view[1] - this.view[0]) / 2;
      this.show([end - half, end + half]);
    }
    this.pick(index);
    const box = this.canvas.getBoundingClientRect();
    this.tell(index, box.left + this.x(end), box.top + this.laneY(this.line.client[index]));
  }

  hover(event) {
    const lane = Math.floor((event.offsetY - this.top) / this.step) + this.first;
    const at = this.x.invert(event.offsetX);
    const index = this.line.client.findIndex((client, number) => client === lane && this.line.start_s[number] <= at && at <= this.line.end_s[number]);
    if (index !== this.picked) this.pick(index);
    if (index >= 0) this.tell(index, event.clientX, event.clientY); else this.tellStep(event);
  }

  tellStep(event) {
    const near = event.offsetY < this.top ? nearest(this.line.step_s, this.x.invert(event.offsetX)) : -1;
    if (near >= 0 && Math.abs(this.x(this.line.step_s[near]) - event.offsetX) < 7) {
      const used = this.line.base.filter((base, index) => this.line.used[index] && base + this.line.staleness[index] + 1 === this.line.version[near]).length;
      tooltip.show(event.clientX, event.clientY, `version ${this.line.version[near]}`, [["made at", this.clock(this.line.step_s[near])], ["updates in it", String(used)]]);
    } else tooltip.hide();
  }

  tell(index, x, y) {
    const line = this.line;
    const base = line.base[index];
    const target = base + line.staleness[index] + 1;
    const made = this.stepOf.get(base);
    const rows = [["computed from", `version ${base}${made === undefined ? "" : `, of ${this.clock(made)}`}`], ["began", this.clock(line.start_s[index])],
      ["came in", this.clock(line.end_s[index])], ["staleness", plural(line.staleness[index], "step")]];
    if (!line.used[index]) rows.push(["used", "no"]);
    else if (this.stepOf.has(target)) rows.push(["used in", `version ${target}, ${this.clock(this.stepOf.get(target))}`]);
    tooltip.show(x, y, `client ${line.client[index]}`, rows);
  }

  clock(seconds) {
    return `${(seconds + this.line.begin_s).toFixed(4)} s`;
  }

  pick(index) {
    this.picked = index;
    if (index < 0) tooltip.hide();
    this.draw();
  }

  // ---------------------------------------------------------------------------------------------- drawing

  laneY(client) {
    return this.top + (client - this.first + 0.5) * this.step;
  }

  draw() {
    const width = Math.max(260, this.canvas.parentElement ? this.canvas.parentElement.clientWidth : 600);
    this.top = 62;
    this.step = Math.max(11, Math.min(30, 420 / this.lanes));
    const height = Math.round(this.top + this.lanes * this.step + 42);
    this.pen = prepared(this.canvas, width, height);
    this.x = linearScale(this.view, [LEFT, width - 14]);
    this.right = width - 14;
    this.inks = inks();
    this.drawLanes(width, height);
    const seen = this.visible();
    this.drawBars(seen);
    this.drawCurves(seen);
    this.drawServer(width);
    this.drawOverview(width);
    this.where.value = `${format(this.view[0] + this.line.begin_s, 5)} s to ${format(this.view[1] + this.line.begin_s, 5)} s, ${plural(seen.length, "update")}`;
  }

  visible() {
    const [from, to] = this.view;
    const seen = [];
    for (let index = 0; index < this.line.shown; index += 1) {
      const lane = this.line.client[index] - this.first;
      if (this.line.end_s[index] >= from && this.line.start_s[index] <= to && lane >= 0 && lane < this.lanes) seen.push(index);
    }
    return seen;
  }

  drawLanes(width, height) {
    const { pen } = this;
    pen.fillStyle = this.inks.paper;
    pen.fillRect(0, 0, width, height);
    pen.font = `11px ${FONT}`;
    const every = Math.ceil(14 / this.step);
    for (let lane = 0; lane < this.lanes; lane += 1) {
      const y = this.top + lane * this.step;
      if (lane % 2 === 0) { pen.fillStyle = this.inks.grid; pen.globalAlpha = 0.45; pen.fillRect(LEFT, y, width - 14 - LEFT, this.step); pen.globalAlpha = 1; }
      pen.fillStyle = this.inks.muted;
      pen.textAlign = "right";
      if (lane % every === 0) pen.fillText(`client ${lane + this.first}`, LEFT - 14, y + this.step / 2 + 4);
    }
    this.drawClock(width, height);
  }

  drawClock(width, height) {
    const { pen } = this;
    const shifted = linearScale(this.view.map((time) => time + this.line.begin_s), [LEFT, width - 14]);
    pen.textAlign = "center";
    pen.strokeStyle = this.inks.grid;
    for (const tick of shifted.ticks(Math.max(3, Math.floor(width / 110)))) {
      pen.beginPath();
      pen.moveTo(shifted(tick), this.top);
      pen.lineTo(shifted(tick), height - 36);
      pen.stroke();
      pen.fillText(format(tick, 6), shifted(tick), height - 22);
    }
    pen.fillText("time (s)", (LEFT + width - 14) / 2, height - 7);
  }

  drawBars(seen) {
    const { pen, line } = this;
    const thick = Math.max(3, this.step * 0.46);
    for (const index of seen) {
      const [from, to] = [Math.max(this.x(line.start_s[index]), LEFT), Math.min(this.x(line.end_s[index]), this.right)];
      const y = this.laneY(line.client[index]);
      const share = line.staleness[index] / this.stalest;
      pen.globalAlpha = this.picked >= 0 && this.picked !== index ? 0.45 : 1;
      pen.fillStyle = pen.strokeStyle = mix(this.inks.fresh, this.inks.stale, Math.sqrt(share));
      if (line.used[index]) pen.fillRect(from, y - thick / 2, Math.max(to - from - 1.2, 0.8), thick);
      else pen.strokeRect(from, y - thick / 2, Math.max(to - from - 1.2, 0.8), thick);
      if (to - from > 30 && thick >= 10) this.nameBase(index, from, y, share);
    }
    pen.globalAlpha = 1;
  }

  nameBase(index, from, y, share) {
    const { pen } = this;
    pen.fillStyle = !this.line.used[index] || Math.sqrt(share) < 0.55 ? this.inks.onFresh : this.inks.onStale;
    pen.textAlign = "left";
    pen.font = `10px ${FONT}`;
    pen.fillText(`v${this.line.base[index]}`, from + 7, y + 3.5);
  }

  drawCurves(seen) {
    const { pen } = this;
    pen.lineWidth = 1;
    pen.globalAlpha = this.picked >= 0 ? 0.12 : 0.5;
    pen.strokeStyle = pen.fillStyle = this.inks.muted;
    if (seen.length <= FEW) for (const index of seen) this.curves(index);
    if (this.picked < 0) { pen.globalAlpha = 1; return; }
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.strokeStyle = pen.fillStyle = this.inks.accent;
    this.curves(this.picked);
  }

  curves(index) {
    const { line } = this;
    const y = this.laneY(line.client[index]);
    const made = this.stepOf.get(line.base[index]);
    const used = line.used[index] ? this.stepOf.get(line.base[index] + line.staleness[index] + 1) : undefined;
    if (made !== undefined) this.curve(this.x(made), SERVER_Y + 7, this.x(line.start_s[index]), y, true);
    if (used !== undefined) this.curve(this.x(line.end_s[index]), y, this.x(used), SERVER_Y + 7, false);
  }

  // Down curves leave the server upright, up curves arrive upright, as in the paper's figure.
  curve(fromX, fromY, toX, toY, down) {
    const { pen } = this;
    const clip = (x) => Math.min(Math.max(LEFT, x), this.right);
    if (toX < LEFT || fromX > this.right) return;
    pen.beginPath();
    pen.moveTo(clip(fromX), fromY);
    if (down) pen.bezierCurveTo(clip(fromX), (fromY + toY) / 2, clip(toX) - 6, toY, clip(toX), toY);
    else pen.bezierCurveTo(clip(fromX) + 6, fromY, clip(toX), (fromY + toY) / 2, clip(toX), toY);
    pen.stroke();
    if (toX <= this.right) this.arrow(toX, toY, down);
  }

  arrow(x, y, down) {
    const { pen } = this;
    pen.beginPath();
    if (down) { pen.moveTo(x, y); pen.lineTo(x - 5, y - 3); pen.lineTo(x - 5, y + 3); }
    else { pen.moveTo(x, y); pen.lineTo(x - 3, y + 5); pen.lineTo(x + 3, y + 5); }
    pen.fill();
  }

  drawServer(width) {
    const { pen, line } = this;
    pen.strokeStyle = pen.fillStyle = this.inks.ink;
    pen.lineWidth = 1;
    pen.font = `600 11px ${FONT}`;
    pen.textAlign = "right";
    pen.fillText("server", LEFT - 14, SERVER_Y + 4);
    pen.beginPath();
    pen.moveTo(LEFT, SERVER_Y);
    pen.lineTo(width - 14, SERVER_Y);
    pen.stroke();
    pen.textAlign = "center";
    pen.font = `10px ${FONT}`;
    let free = 0;
    line.step_s.forEach((time, index) => {
      const x = this.x(time);
      if (x < LEFT || x > this.right) return;
      const half = this.isOfPicked(line.version[index]) ? 6 : 4.5;
      pen.fillStyle = half > 5 ? this.inks.accent : this.inks.ink;
      pen.fillRect(x - half, SERVER_Y - half, 2 * half, 2 * half);
      if (x - 14 < free) return;
      pen.fillText(`v${line.version[index]}`, x, SERVER_Y - 11);
      free = x + 14;
    });
  }

  isOfPicked(version) {
    if (this.picked < 0) return false;
    const base = this.line.base[this.picked];
    return version === base || version === base + this.line.staleness[this.picked] + 1;
  }

  // How many updates came in when, over the whole window, and which part is in view.
  drawOverview(width) {
    const pen = prepared(this.map, width, 34);
    const bins = new Array(Math.max(20, Math.floor(width / 4))).fill(0);
    for (const end of this.line.end_s) bins[Math.min(bins.length - 1, Math.floor((end / this.whole[1]) * bins.length))] += 1;
    const most = Math.max(...bins, 1);
    pen.fillStyle = this.inks.muted;
    bins.forEach((count, index) => pen.fillRect((index * width) / bins.length, 33 - (26 * count) / most, width / bins.length - 0.5, (26 * count) / most));
    const place = linearScale(this.whole, [0, width]);
    pen.fillStyle = pen.strokeStyle = this.inks.accent;
    pen.globalAlpha = 0.16;
    pen.fillRect(place(this.view[0]), 0, Math.max(place(this.view[1]) - place(this.view[0]), 2), 34);
    pen.globalAlpha = 1;
    pen.strokeRect(place(this.view[0]) + 0.5, 0.5, Math.max(place(this.view[1]) - place(this.view[0]), 2) - 1, 33);
  }
}

const SERVER_Y = 36;
const LEFT = 72; // of the lanes, behind their names
const FONT = "system-ui, sans-serif";

function prepared(canvas, width, height) {
  const dense = Math.max(window.devicePixelRatio || 1, 2);
  canvas.width = width * dense;
  canvas.height = height * dense;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  return pen;
}

// The colours of the style sheet, which knows whether it is dark or printed.
function inks() {
  const style = getComputedStyle(document.documentElement);
  const names = { ink: "--ink", muted: "--muted", grid: "--grid", paper: "--paper", accent: "--accent", fresh: "--fresh", stale: "--stale", onFresh: "--on-fresh", onStale: "--on-stale" };
  return Object.fromEntries(Object.entries(names).map(([name, property]) => [name, style.getPropertyValue(property).trim()]));
}

function mix(first, second, share) {
  const parts = (colour) => [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  const other = parts(second);
  return `rgb(${parts(first).map((value, index) => Math.round(value + (other[index] - value) * share)).join(",")})`;
}
