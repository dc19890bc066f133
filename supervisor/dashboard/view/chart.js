// A chart: uPlot with bands behind the lines, keyboard control, a readout, and a zoom that updates never change.

import { KINDS, LANES, within } from "../shape/bands.js";
import { clock, count, date, figures, known, moment } from "../text.js";

const uPlot = globalThis.uPlot;
const SHARED = uPlot.sync("time"); // all charts over time, and the timeline, share their cursor
const FONT = "12px system-ui, sans-serif";

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
};

const LINES = {
  lost: { stroke: "lost", width: 1, dash: [3, 3] },
  seed: { stroke: "seed", width: 1 },
  low: { stroke: "none", width: 0 },
  high: { stroke: "none", width: 0 },
  mean: { stroke: "accent", width: 2 },
};

/** The text for a value of each x axis. */
const placeWords = { wall: clock, steps: count, hours: (x) => `${figures(x)} h`, dollars: (x) => `$${figures(x)}` };

export class Chart {
  #element;
  #plot = null;
  #model = null;
  #shape = "";
  #size;
  #zoomed = false;
  #place = null;

  /** Draws into `element`; `tell(text)` gets the text for the point under the cursor. */
  constructor(element, tell = () => {}) {
    this.#element = element;
    this.tell = tell;
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("dblclick", () => this.showAll());
    this.#size = new ResizeObserver(() => this.#fit());
    this.#size.observe(element);
  }

  /** The index of the point under the cursor; null before the cursor is moved. */
  get place() {
    return this.#place;
  }

  get zoomed() {
    return this.#zoomed;
  }

  /** The range of x that is shown. */
  get range() {
    const { min, max } = this.#plot?.scales.x ?? {};
    return [min, max];
  }

  /** Draw the model {data, kinds, axis, bands, toX, range, words, lanes}. A zoom does not change. */
  update(model) {
    this.#model = model;
    const shape = `${model.kinds} ${model.axis}`;
    if (this.#plot && shape === this.#shape) {
      this.#plot.batch(() => {
        this.#plot.setData(model.data, false);
        if (!this.#zoomed) this.#setRange(model.range);
        else this.#plot.redraw();
      });
      return;
    }
    const keep = this.#zoomed && this.#shape.split(" ")[1] === model.axis ? this.range : null;
    this.#plot?.destroy();
    this.#shape = shape;
    this.#zoomed = false;
    this.#plot = new uPlot(this.#options(model), model.data, this.#element);
    this.#setRange(keep ?? model.range);
    this.#zoomed = keep !== null;
  }

  /** Draw again, in other colours. */
  recolour() {
    this.#plot?.redraw(false);
  }

  showAll() {
    this.#zoomed = false;
    if (this.#plot) this.#setRange(this.#model.range);
  }

  destroy() {
    this.#size.disconnect();
    this.#plot?.destroy();
    this.#plot = null;
  }

  #setRange([min, max]) {
    this.#plot.setScale("x", { min, max: max > min ? max : min + 1 });
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#element;
    if (this.#plot && width && height) this.#plot.setSize({ width, height });
  }

  #options({ kinds, axis, lanes }) {
    const ink = (name) => () => colours()(name);
    const place = (kind) => kinds.indexOf(kind) + 1;
    const timed = axis === "wall";
    const grid = { stroke: ink("grid"), width: 1 };
    const common = { stroke: ink("muted"), font: FONT, grid, ticks: { show: false } };
    return {
      width: this.#element.clientWidth || 300,
      height: this.#element.clientHeight || 150,
      legend: { show: false },
      cursor: {
        sync: timed ? { key: SHARED.key, scales: ["x", null] } : undefined,
        points: { show: !lanes },
        drag: { x: true, y: false, setScale: false },
        y: false,
      },
      scales: { x: { time: timed, auto: false }, y: { range: lanes ? [0, 1] : padded } },
      axes: [
        { ...common, size: 28, space: 64, values: timed ? times : (_, splits) => splits.map(placeWords[axis]) },
        lanes
          ? { ...common, size: 100, grid: { show: false }, values: () => [] }
          : { ...common, size: 52, space: 32, values: (_, splits) => splits.map((value) => (Math.abs(value) >= 1000 ? count(value) : figures(value))) },
      ],
      series: [
        {},
        ...kinds.map((kind) => {
          const { stroke, width, dash } = LINES[kind];
          return { stroke: stroke === "none" ? undefined : ink(stroke), width, dash, points: { show: false } };
        }),
      ],
      bands: kinds.includes("high") ? [{ series: [place("high"), place("low")], fill: ink("band") }] : [],
      hooks: {
        drawClear: [(plot) => (lanes ? this.#drawLanes(plot) : this.#drawBands(plot))],
        setCursor: [(plot) => this.#moved(plot)],
        setSelect: [(plot) => this.#selected(plot)],
      },
    };
  }

  #selected(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    this.#zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  #zoom(min, max) {
    this.#zoomed = true;
    this.#setRange([min, max]);
  }

  // --- bands ---------------------------------------------------------------------------------------------------------

  /** Behind a curve: a tint for a trial, a bar for the time that a reboot took, lines for levels and rollbacks. */
  #drawBands(plot) {
    const { bands, toX } = this.#model;
    const { left, top, width, height } = plot.bbox;
    const ink = colours();
    const draw = plot.ctx;
    const ratio = devicePixelRatio;
    draw.save();
    draw.beginPath();
    draw.rect(left, top, width, height);
    draw.clip();
    for (const band of bands) {
      const [from, to] = [band.from_s, band.to_s ?? band.from_s].map((t) => {
        const x = toX(t);
        return known(x) ? plot.valToPos(x, "x", true) : null;
      });
      if (from === null && to === null) continue;
      const [begin, end] = [from ?? left, to ?? left + width];
      if (end < left || begin > left + width) continue;
      if (band.kind === "trial") {
        draw.fillStyle = ink("trial");
        draw.fillRect(begin, top, Math.max(end - begin, ratio), height);
      } else if (band.kind === "reboot") {
        draw.fillStyle = ink("reboot");
        draw.fillRect(begin, top, Math.max(end - begin, 2 * ratio), height);
      } else if (band.kind === "level" || band.kind === "rollback") {
        draw.strokeStyle = ink(band.kind === "level" ? "muted" : "rollback");
        draw.lineWidth = ratio;
        draw.setLineDash(band.kind === "level" ? [ratio, 3 * ratio] : [5 * ratio, 2 * ratio]);
        draw.beginPath();
        draw.moveTo(begin, top);
        draw.lineTo(begin, top + height);
        draw.stroke();
      }
    }
    draw.restore();
  }

  /** The timeline: a lane for levels and trials, one for each kind of event. */
  #drawLanes(plot) {
    const { bands } = this.#model;
    const { left, top, width, height } = plot.bbox;
    const ink = colours();
    const draw = plot.ctx;
    const ratio = devicePixelRatio;
    const lane = height / LANES.length;
    const [min, max] = [plot.scales.x.min, plot.scales.x.max];
    draw.save();
    draw.textBaseline = "middle";
    draw.textAlign = "right";
    draw.font = `${12 * ratio}px system-ui, sans-serif`;
    LANES.forEach((word, place) => {
      draw.fillStyle = ink("grid");
      draw.fillRect(left, top + (place + 1) * lane - ratio, width, ratio);
      draw.fillStyle = ink("muted");
      draw.fillText(word, left - 8 * ratio, top + (place + 0.5) * lane);
    });
    draw.beginPath();
    draw.rect(left, top, width, height);
    draw.clip();
    draw.textAlign = "left";
    for (const band of within(bands, min, max)) {
      const y = top + KINDS[band.kind].lane * lane;
      const begin = Math.max(plot.valToPos(band.from_s, "x", true), left);
      const end = Math.min(plot.valToPos(band.to_s ?? band.from_s, "x", true), left + width);
      const wide = Math.max(end - begin, (band.kind === "level" ? 1 : 3) * ratio);
      draw.fillStyle = ink(`lane-${band.kind}`);
      draw.fillRect(begin, y + 3 * ratio, wide, lane - 7 * ratio);
      if (KINDS[band.kind].lane === 0) {
        draw.fillStyle = ink("card");
        draw.fillRect(begin, y, ratio, lane);
        draw.fillStyle = ink("text");
        const room = wide - 8 * ratio;
        if (draw.measureText(band.label).width <= room) draw.fillText(band.label, begin + 5 * ratio, y + lane / 2);
      }
    }
    draw.restore();
  }

  // --- the cursor ----------------------------------------------------------------------------------------------------

  #moved(plot) {
    const { idx, left } = plot.cursor;
    if (!known(idx) || left < 0) this.tell("");
    else this.#at(idx);
  }

  #at(place) {
    const { words, axis, data } = this.#model;
    this.#place = place;
    const x = data[0][place];
    const text = words ? words(place) : this.#readout(place);
    this.tell(`${axis === "wall" ? moment(x, this.#model.range[1]) : placeWords[axis](x)} · ${text}`);
  }

  #readout(place) {
    const { data, kinds, n } = this.#model;
    const at = (kind) => data[kinds.indexOf(kind) + 1] ?? [];
    const index = nearest(at("mean"), place);
    const [mean, low, high] = [at("mean"), at("low"), at("high")].map((line) => line[index]);
    if (!known(mean)) return "nothing known";
    const spread = known(low) && known(high) && high > low ? ` (${figures(low)} to ${figures(high)}${n > 1 ? `, n ${n}` : ""})` : "";
    return `${figures(mean)}${spread}`;
  }

  /** Arrows move the cursor, with Shift by ten; + and - zoom around it; 0 or Escape shows all. */
  #key(event) {
    const plot = this.#plot;
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const [min, max] = this.range;
    const centre = this.#model.data[0][this.#place] ?? (min + max) / 2;
    if (step) this.#step(step * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home" || event.key === "End") this.#step(event.key === "Home" ? -1e9 : 1e9);
    else if (event.key === "+" || event.key === "=") this.#zoom(centre - (centre - min) / 2, centre + (max - centre) / 2);
    else if (event.key === "-") this.#zoomOut(centre, min, max);
    else if (event.key === "0" || (event.key === "Escape" && this.#zoomed)) this.showAll();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #zoomOut(centre, min, max) {
    const [least, most] = this.#model.range;
    const [from, to] = [centre - (centre - min) * 2, centre + (max - centre) * 2];
    if (from <= least && to >= most) this.showAll();
    else this.#zoom(Math.max(from, least), Math.min(to, most));
  }

  #step(by) {
    const plot = this.#plot;
    const xs = this.#model.data[0];
    const [min, max] = this.range;
    const first = xs.findIndex((x) => x >= min);
    const last = xs.findLastIndex((x) => x <= max);
    if (first < 0 || last < first) return;
    const from = this.#place === null || this.#place < first || this.#place > last ? (by > 0 ? first - 1 : last + 1) : this.#place;
    const line = this.#model.data[this.#model.kinds.indexOf("mean") + 1];
    let place = Math.min(last, Math.max(first, from + by));
    while (line && !known(line[place]) && place + Math.sign(by) >= first && place + Math.sign(by) <= last) place += Math.sign(by);
    plot.setCursor({ left: plot.valToPos(xs[place], "x"), top: 10 });
    this.#at(place); // of several points on the same pixel, the plot reports only the first
  }
}

const NEAR = 12; // most points of other lines between two points of the same line

/** The place nearest to `place` at which a line is known. */
function nearest(line, place) {
  for (let off = 0; off < NEAR; off += 1) {
    if (known(line[place - off])) return place - off;
    if (known(line[place + off])) return place + off;
  }
  return place;
}

/** A small margin above and below; a flat line lies in the middle. */
function padded(_, low, high) {
  if (!known(low) || !known(high)) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

/** Times of day, and the date where a day begins. */
function times(_, splits) {
  const long = splits.at(-1) - splits[0] > 2 * 86400;
  return splits.map((t) => {
    const midnight = new Date(t * 1000).getHours() === 0 && new Date(t * 1000).getMinutes() === 0;
    return midnight || long ? date(t) : clock(t);
  });
}
