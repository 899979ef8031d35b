"use strict";
// The timeline of events: the server above, one lane per client below. A bar is an update from the client's start to its
// arrival; curves lead from the server step that made its base version to it, and from it to the step that used it.

const LANES = 48; // clients that are drawn at once
const FIRST = 36; // updates in view at first

class TimelineView {
  constructor(box, timeline) {
    this.line = timeline;
    this.first = 0; // client of the first lane
    this.lanes = Math.min(timeline.clients, LANES);
    this.map = element("canvas", { class: "overview", "aria-hidden": "true" });
    this.canvas = element("canvas", { class: "timeline", tabindex: 0, role: "img", "aria-label": this.describe() });
    this.picture = new TimelinePicture(this.canvas, this.map, timeline);
    this.whole = this.picture.whole;
    const early = timeline.end_s[Math.min(box.clientWidth < 500 ? FIRST / 2 : FIRST, timeline.end_s.length) - 1];
    this.view = [0, Math.min(this.whole[1], early || this.whole[1])];
    if (views.window && views.window.line === timeline) this.view = views.window.view;
    this.picked = -1;
    this.where = element("output", { class: "hint", id: "timeline-where" });
    box.replaceChildren(this.tools(), this.canvas, this.map, this.key());
    this.listen();
    this.draw();
  }

  describe() {
    const line = this.line;
    return (
      `Timeline: ${plural(line.shown, "update")} of ${plural(line.clients, "client")}, ${this.bounds()}. ` +
      `Arrow keys move, plus and minus zoom, 0 shows all, shift and arrow keys go from update to update.`
    );
  }

  bounds() {
    const { begin_s, until_s } = this.line;
    const [from, to] = [begin_s, begin_s + until_s].map((time) => timeText(time, until_s || 1));
    return `from ${from} s to ${to} s`;
  }

  tools() {
    const button = (text, label, action) =>
      element("button", { type: "button", "aria-label": label, title: label, on: { click: action } }, text);
    const pages = Math.ceil(this.line.clients / LANES);
    const choice =
      pages < 2
        ? null
        : element(
            "select",
            { "aria-label": "Clients shown", on: { change: (event) => this.turn(Number(event.target.value)) } },
            ...Array.from({ length: pages }, (_, page) =>
              element(
                "option",
                { value: page },
                `clients ${page * LANES}–${Math.min((page + 1) * LANES, this.line.clients) - 1}`,
              ),
            ),
          );
    return element(
      "div",
      { class: "bar no-print" },
      element(
        "div",
        { class: "buttons" },
        button("+", "Zoom in", () => this.zoom(0.5)),
        button("−", "Zoom out", () => this.zoom(2)),
        button("←", "Earlier", () => this.pan(-0.5)),
        button("→", "Later", () => this.pan(0.5)),
        button("All", "Show the whole window", () => this.show([...this.whole])),
      ),
      choice,
      this.where,
    );
  }

  turn(page) {
    this.first = page * LANES;
    this.lanes = Math.min(LANES, this.line.clients - this.first);
    this.draw();
  }

  key() {
    const scale = element("span", { class: "ramp", "aria-hidden": "true" });
    const line = this.line;
    const part =
      line.shown < line.of || line.begin_s > 0
        ? ` Shown: ${whole(line.shown)} of ${whole(line.of)} updates, ${this.bounds()} of ${format(line.run_s, 6)} s.`
        : "";
    return element(
      "p",
      { class: "caption" },
      "Squares: the server steps to a new version. Bars: a client computes, from the version written in them; " +
        "a curve down comes from the step that made that version, a curve up leads to the step that used the update. ",
      element("span", { class: "key" }, "Staleness 0 ", scale, ` ${this.picture.stalest}`),
      ` Outlined: not used.${part} Drag to move, Ctrl and wheel to zoom.`,
    );
  }

  // ---------------------------------------------------------------------------------------------- moving

  show([from, to]) {
    const length = Math.min(Math.max(to - from, this.whole[1] * 1e-5), this.whole[1]);
    const last = this.whole[1] - length;
    const start = from < this.whole[1] * 1e-9 || last < this.whole[1] * 1e-9 ? 0 : Math.min(from, last);
    this.view = [start, start + length];
    views.window = { line: this.line, view: this.view };
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
    listen(this.canvas, {
      wheel: (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.picture.x.invert(event.offsetX));
      },
      pointerdown: (event) => {
        pointers.set(event.pointerId, event.offsetX);
        this.canvas.setPointerCapture(event.pointerId);
      },
      pointerup: (event) => pointers.delete(event.pointerId),
      pointercancel: (event) => pointers.delete(event.pointerId),
      pointerleave: () => {
        if (this.picked !== -1) this.pick(-1);
        tooltip.hide();
      },
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
    listen(this.map, { pointerdown: jump, pointermove: jump });
  }

  // One pointer moves the window, two change its length.
  drag(pointers, event) {
    const before = [...pointers.values()];
    const moved = event.offsetX - pointers.get(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    if (before.length === 1) {
      const by =
        (moved / (this.picture.x(this.view[1]) - this.picture.x(this.view[0]))) * (this.view[1] - this.view[0]);
      this.show([this.view[0] - by, this.view[1] - by]);
    } else {
      const after = [...pointers.values()];
      const factor = Math.abs(before[0] - before[1]) / Math.max(Math.abs(after[0] - after[1]), 1);
      this.zoom(factor, this.picture.x.invert((after[0] + after[1]) / 2));
    }
  }

  press(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const actions = {
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.show([...this.whole]),
      Escape: () => this.pick(-1),
    };
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
    this.tell(index, box.left + this.picture.x(end), box.top + this.picture.laneY(this.line.client[index]));
  }

  hover(event) {
    const lane = Math.floor((event.offsetY - this.picture.top) / this.picture.step) + this.first;
    const at = this.picture.x.invert(event.offsetX);
    const index = this.line.client.findIndex(
      (client, number) => client === lane && this.line.start_s[number] <= at && at <= this.line.end_s[number],
    );
    if (index !== this.picked) this.pick(index);
    if (index >= 0) this.tell(index, event.clientX, event.clientY);
    else this.tellStep(event);
  }

  tellStep(event) {
    const near =
      event.offsetY < this.picture.top ? nearest(this.line.step_s, this.picture.x.invert(event.offsetX)) : -1;
    if (near >= 0 && Math.abs(this.picture.x(this.line.step_s[near]) - event.offsetX) < 7) {
      const rows = [["made at", this.clock(this.line.step_s[near])]];
      if (this.hasAllOf(near)) rows.push(["updates in it", String(this.updatesIn(this.line.version[near]))]);
      tooltip.show(event.clientX, event.clientY, `version ${this.line.version[near]}`, rows);
    } else tooltip.hide();
  }

  updatesIn(version) {
    const { base, staleness, used } = this.line;
    return base.filter((from, index) => used[index] && from + staleness[index] + 1 === version).length;
  }

  // The first step of a window that begins after the start of the run may use updates from before the window.
  hasAllOf(step) {
    const { begin_s, step_s } = this.line;
    return begin_s <= 0 || step > step_s.findIndex((time) => time >= 0);
  }

  tell(index, x, y) {
    const line = this.line;
    const base = line.base[index];
    const target = base + line.staleness[index] + 1;
    const made = this.picture.stepOf.get(base);
    const rows = [
      ["computed from", `version ${base}${made === undefined ? "" : `, of ${this.clock(made)}`}`],
      ["began", this.clock(line.start_s[index])],
      [line.used[index] ? "came in" : "ended", this.clock(line.end_s[index])],
      ["staleness", plural(line.staleness[index], "step")],
    ];
    if (!line.used[index]) rows.push(["used", "no"]);
    else if (this.picture.stepOf.has(target))
      rows.push(["used in", `version ${target}, ${this.clock(this.picture.stepOf.get(target))}`]);
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

  draw() {
    const seen = this.picture.draw(this.view, this.first, this.lanes, this.picked);
    const [from, to] = this.view.map((time) => timeText(time + this.line.begin_s, this.view[1] - this.view[0]));
    this.where.value = `${from} s to ${to} s, ${plural(seen, "update")}`;
  }
}
