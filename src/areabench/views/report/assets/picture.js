"use strict";
// What a timeline looks like: lanes, bars, curves and the server, on two canvases.

const SERVER_Y = 36;
const LEFT = 72; // of the lanes, behind their names
const FEW = 70; // updates in view up to which all curves are drawn
const FONT = "system-ui, sans-serif";

class TimelinePicture {
  constructor(canvas, map, timeline) {
    this.canvas = canvas;
    this.map = map;
    this.line = timeline;
    this.stepOf = new Map(timeline.version.map((version, index) => [version, timeline.step_s[index]]));
    this.stalest = Math.max(1, ...timeline.staleness);
    this.whole = [0, Math.max(timeline.until_s, 1e-9)];
  }

  laneY(client) {
    return this.top + (client - this.first + 0.5) * this.step;
  }

  // Draws a window (s) from the first client on, a number of lanes, and the selected update; returns the number of updates.
  draw(view, first, lanes, picked) {
    Object.assign(this, { view, first, lanes, picked });
    const width = Math.max(260, this.canvas.parentElement ? this.canvas.parentElement.clientWidth : 600);
    this.top = 62;
    this.step = Math.max(11, Math.min(30, 420 / lanes));
    const height = Math.round(this.top + lanes * this.step + 42);
    this.pen = prepared(this.canvas, width, height);
    this.x = linearScale(view, [LEFT, width - 14]);
    this.right = width - 14;
    this.inks = inks();
    this.drawLanes(width, height);
    const seen = this.visible();
    this.drawBars(seen);
    this.drawCurves(seen);
    this.drawServer(width);
    this.drawOverview(width);
    return seen.length;
  }

  visible() {
    const [from, to] = this.view;
    const seen = [];
    for (let index = 0; index < this.line.shown; index += 1) {
      const lane = this.line.client[index] - this.first;
      if (this.line.end_s[index] >= from && this.line.start_s[index] <= to && lane >= 0 && lane < this.lanes)
        seen.push(index);
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
      if (lane % 2 === 0) {
        pen.fillStyle = this.inks.grid;
        pen.globalAlpha = 0.45;
        pen.fillRect(LEFT, y, width - 14 - LEFT, this.step);
        pen.globalAlpha = 1;
      }
      pen.fillStyle = this.inks.muted;
      pen.textAlign = "right";
      if (lane % every === 0) pen.fillText(`client ${lane + this.first}`, LEFT - 14, y + this.step / 2 + 4);
    }
    this.drawClock(width, height);
  }

  drawClock(width, height) {
    const { pen } = this;
    const shifted = linearScale(
      this.view.map((time) => time + this.line.begin_s),
      [LEFT, width - 14],
    );
    pen.textAlign = "center";
    pen.strokeStyle = this.inks.grid;
    for (const tick of shifted.ticks(Math.max(3, Math.floor(width / 110)))) {
      pen.beginPath();
      pen.moveTo(shifted(tick), this.top);
      pen.lineTo(shifted(tick), height - 36);
      pen.stroke();
      pen.fillText(timeText(tick, this.view[1] - this.view[0]), shifted(tick), height - 22);
    }
    pen.fillText(`${this.line.clock} (s)`, (LEFT + width - 14) / 2, height - 7);
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
    if (this.picked < 0) {
      pen.globalAlpha = 1;
      return;
    }
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
    if (down) {
      pen.moveTo(x, y);
      pen.lineTo(x - 5, y - 3);
      pen.lineTo(x - 5, y + 3);
    } else {
      pen.moveTo(x, y);
      pen.lineTo(x - 3, y + 5);
      pen.lineTo(x + 3, y + 5);
    }
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

  // Updates over time in the whole window, and the part in view.
  drawOverview(width) {
    const pen = prepared(this.map, width, 34);
    const bins = new Array(Math.max(20, Math.floor(width / 4))).fill(0);
    for (const end of this.line.end_s)
      bins[Math.min(bins.length - 1, Math.floor((end / this.whole[1]) * bins.length))] += 1;
    const most = Math.max(...bins, 1);
    pen.fillStyle = this.inks.muted;
    bins.forEach((count, index) =>
      pen.fillRect(
        (index * width) / bins.length,
        33 - (26 * count) / most,
        width / bins.length - 0.5,
        (26 * count) / most,
      ),
    );
    const place = linearScale(this.whole, [0, width]);
    pen.fillStyle = pen.strokeStyle = this.inks.accent;
    pen.globalAlpha = 0.16;
    pen.fillRect(place(this.view[0]), 0, Math.max(place(this.view[1]) - place(this.view[0]), 2), 34);
    pen.globalAlpha = 1;
    pen.strokeRect(place(this.view[0]) + 0.5, 0.5, Math.max(place(this.view[1]) - place(this.view[0]), 2) - 1, 33);
  }
}

function prepared(canvas, width, height) {
  const dense = Math.max(window.devicePixelRatio || 1, 2);
  canvas.width = width * dense;
  canvas.height = height * dense;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  return pen;
}

// The colours of the style sheet, for the dark theme and print too.
function inks() {
  const style = getComputedStyle(document.documentElement);
  const names = {
    ink: "--ink",
    muted: "--muted",
    grid: "--grid",
    paper: "--paper",
    accent: "--accent",
    fresh: "--fresh",
    stale: "--stale",
    onFresh: "--on-fresh",
    onStale: "--on-stale",
  };
  return Object.fromEntries(
    Object.entries(names).map(([name, property]) => [name, style.getPropertyValue(property).trim()]),
  );
}

function mix(first, second, share) {
  const parts = (colour) => [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  const other = parts(second);
  return `rgb(${parts(first)
    .map((value, index) => Math.round(value + (other[index] - value) * share))
    .join(",")})`;
}
