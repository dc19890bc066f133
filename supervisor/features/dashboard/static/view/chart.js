// A chart: uPlot with bands behind the lines, keyboard control, touch zoom and a readout. The page keeps the zoom, so that all
// charts of a page share it and no update moves it.

import { KINDS, LANES, within } from "../shape/bands.js";
import { nearest } from "../shape/curves.js";
import { clock, clockSeconds, count, date, dollars, figures, known, moment, spaced, span } from "../text.js";

const uPlot = globalThis.uPlot;
const SHARED = { wall: uPlot.sync("wall"), other: uPlot.sync("other") }; // charts of one axis share their cursor
const FONT = "12px system-ui, sans-serif";
const LEAST_PX = 5; // a shorter drag is a click
const TWICE_MS = 350; // two taps within this time are a double tap

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
};

const LINES = {
  lost: { stroke: "lost", width: 1, dash: [3, 3] },
  seed: { stroke: "seed", width: 1 },
  low: { width: 0 },
  high: { width: 0 },
  mean: { stroke: "accent", width: 2 },
};

/** Lines with a colour of their own: eight colours, then the same ones dashed. */
const INKS = 8;
export const lineOf = (ink) => ({ stroke: `line-${ink % INKS}`, width: 1.5, dash: ink >= INKS ? [6, 3] : undefined });

/** Behind curves: the least width of a tint, and the dashes of lines. */
const TINTS = { trial: 1, reboot: 2 };
const DASHES = { level: [1, 3], rollback: [5, 2], stall: [2, 2], settings: [8, 2] };

/** Seconds between two labels of a time axis; from 30 days on, months. */
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, ...[1, 2, 3, 4, 6, 12].map((hours) => hours * 3600), ...[1, 2, 3, 5, 7, 14, 30, 60, 90, 180, 365].map((days) => days * 86_400)];

/** The text for a value of each x axis. */
const placeWords = { wall: clock, steps: count, hours: (x) => span(x * 3600), dollars };

export class Chart {
  #element;
  #plot = null;
  #model = null;
  #shape = "";
  #size;
  #ended = new AbortController();
  #place = null;
  #touches = new Map(); // by identifier: the x value under each finger
  #tapped_ms = 0;
  #pressed = false; // a drag began here: charts that share the cursor only follow it

  /**
   * Draws into `element`. `tell(text, values)` gets the text for the point under the cursor, and the value of each line there.
   * `zoom(range)` gets the range that the reader asks for, null for all.
   */
  constructor(element, tell = () => {}, zoom = () => {}) {
    this.#element = element;
    this.tell = tell;
    this.zoom = zoom;
    const { signal } = this.#ended; // the element outlives its chart: the overview is only hidden behind another page
    element.addEventListener("keydown", (event) => this.#key(event), { signal });
    element.addEventListener("dblclick", () => this.zoom(null), { signal });
    element.addEventListener("mousedown", () => (this.#pressed = true), { capture: true, signal });
    for (const kind of ["touchstart", "touchmove", "touchend", "touchcancel"]) {
      element.addEventListener(kind, (event) => this.#touched(event), { passive: false, signal });
    }
    this.#size = new ResizeObserver(() => this.#fit());
    this.#size.observe(element);
  }

  /** The index of the point under the cursor (null before it is moved), the range of x that is shown, and the canvas. */
  get place() { return this.#place; }
  get range() { return [this.#plot?.scales.x.min, this.#plot?.scales.x.max]; }
  get canvas() { return this.#plot?.ctx.canvas; }

  /**
   * Draw the model {data, kinds, inks, axis, bands, toX, range, words, lanes, log, zero, most}. `inks` are colours of lines of a
   * kind "line"; with `zero` the y axis begins at 0, and it ends at `most`.
   */
  update(model) {
    this.#model = model;
    const shape = `${model.kinds} ${model.inks} ${model.axis} ${model.log}`;
    if (this.#plot && shape === this.#shape) {
      this.#plot.batch(() => {
        this.#plot.setData(model.data, false);
        this.#setRange(model.range);
      });
      return;
    }
    this.#plot?.destroy();
    this.#shape = shape;
    this.#place = null;
    this.#plot = new uPlot(this.#options(model), model.data, this.#element);
    this.#setRange(model.range);
  }

  /** Draw again, in other colours. */
  recolour() { this.#plot?.redraw(false); }

  destroy() {
    this.#size.disconnect();
    this.#ended.abort();
    this.#plot?.destroy();
    this.#plot = null;
  }

  #setRange([min, max]) {
    const { x } = this.#plot.scales;
    const most = max > min ? max : min + 1;
    if (x.min === min && x.max === most) this.#plot.redraw();
    else this.#plot.setScale("x", { min, max: most });
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#element;
    if (this.#plot && width && height) this.#plot.setSize({ width, height });
  }

  #options({ kinds, inks = [], axis, lanes, log, data, zero, most }) {
    const ink = (name) => () => colours()(name);
    const timed = axis === "wall";
    const grid = { stroke: ink("grid"), width: 1 };
    const common = { stroke: ink("muted"), font: FONT, grid, ticks: { show: false } };
    return {
      width: this.#element.clientWidth || 300,
      height: this.#element.clientHeight || 150,
      legend: { show: false },
      cursor: {
        sync: { key: SHARED[timed ? "wall" : "other"].key, scales: ["x", null] },
        points: { show: !lanes },
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => null },
        y: false,
      },
      scales: { x: { time: timed, auto: false }, y: lanes ? { range: [0, 1] } : log ? logarithmic(data) : { range: zero ? (_, low, high) => [0, most ?? ((high || 1) * 1.06)] : padded } },
      axes: [
        { ...common, grid: { ...grid, show: !lanes }, size: 28, space: 64, ...(timed ? { values: times, incrs: STEPS_S } : { values: (_, splits) => splits.map(placeWords[axis]) }) },
        lanes
          ? { ...common, size: 100, grid: { show: false }, values: () => [] }
          : { ...common, size: wide, space: 32, values: (_, splits, _axis, _space, step) => spaced(splits, log ? null : step) },
      ],
      series: [
        {},
        ...kinds.map((kind, place) => {
          const { stroke, width, dash } = kind === "line" ? lineOf(inks[place]) : LINES[kind];
          return { stroke: stroke && ink(stroke), width, dash, points: width ? { show: false, filter: alone, size: 5, fill: ink(stroke) } : { show: false } };
        }),
      ],
      bands: kinds.flatMap((kind, place) => (kind === "high" ? [{ series: [place + 1, place], fill: ink("band") }] : [])),
      hooks: {
        drawClear: [(plot) => (lanes ? this.#drawLanes(plot) : this.#drawBands(plot))],
        setCursor: [(plot) => this.#moved(plot)],
        setSelect: [(plot) => this.#selected(plot)],
      },
    };
  }

  // --- zoom ----------------------------------------------------------------------------------------------------------

  #selected(plot) {
    const { left, width } = plot.select;
    if (width < LEAST_PX) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (this.#pressed) this.zoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
    this.#pressed = false;
  }

  /** Two fingers zoom: the values under them stay under them. One finger moves the cursor; a double tap shows all. */
  #touched(event) {
    const { left, width } = this.#plot?.over.getBoundingClientRect() ?? {};
    if (!width) return;
    const [min, max] = this.range;
    const share = ({ clientX }) => (clientX - left) / width;
    const fingers = [...event.touches];
    if (event.type === "touchstart" || event.type === "touchend") {
      this.#touches = new Map(fingers.map((finger) => [finger.identifier, min + share(finger) * (max - min)]));
    }
    if (event.type === "touchstart" && fingers.length === 1) {
      if (event.timeStamp - this.#tapped_ms < TWICE_MS) this.zoom(null);
      this.#tapped_ms = event.timeStamp;
    }
    if (fingers.length === 1 && event.type !== "touchend") this.#plot.setCursor({ left: share(fingers[0]) * width, top: 10 });
    if (fingers.length < 2) return;
    event.preventDefault();
    const [[one, from], [other, to]] = fingers.slice(0, 2).map((finger) => [share(finger), this.#touches.get(finger.identifier)]);
    if (event.type !== "touchmove" || Math.abs(other - one) < 0.02) return;
    const length = (to - from) / (other - one);
    if (length > 0) this.#bounded(from - one * length, from + (1 - one) * length);
  }

  /** Ask for a range; all, if it would reach beyond both ends. */
  #bounded(from, to) {
    const [least, most] = this.#model.whole ?? this.#model.range;
    if (from <= least && to >= most) this.zoom(null);
    else this.zoom([Math.max(from, least), Math.min(to, most)]);
  }

  // --- bands ---------------------------------------------------------------------------------------------------------

  /** Behind a curve: a tint for a trial, a bar for the time that a reboot took, lines for levels and rollbacks. */
  #drawBands(plot) {
    const { bands, toX } = this.#model;
    const { draw, ink, ratio, left, top, width, height } = pens(plot);
    draw.save();
    clip(plot);
    for (const band of bands) {
      const [from, to] = [band.from_s, band.to_s ?? band.from_s].map((t) => {
        const x = toX(t);
        return known(x) ? plot.valToPos(x, "x", true) : null;
      });
      if (from === null && to === null) continue;
      const [begin, end] = [from ?? left, to ?? left + width];
      if (end < left || begin > left + width) continue;
      if (band.kind in TINTS) {
        draw.fillStyle = ink(band.kind);
        draw.fillRect(begin, top, Math.max(end - begin, TINTS[band.kind] * ratio), height);
      } else if (band.kind in DASHES) {
        draw.strokeStyle = ink(band.kind === "level" ? "muted" : `lane-${band.kind}`);
        draw.lineWidth = ratio;
        draw.setLineDash(DASHES[band.kind].map((length) => length * ratio));
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
    const { draw, ink, ratio, left, top, width, height } = pens(plot);
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
    clip(plot);
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
    if (!known(idx) || left < 0) this.tell("", null);
    else this.#at(idx);
  }

  #at(place) {
    const { words, axis, data } = this.#model;
    this.#place = place;
    const x = data[0][place];
    const values = data.slice(1).map((line) => line[nearest(line, place)]);
    const text = words ? words(place) : this.#readout(place);
    this.tell(`${axis === "wall" ? moment(x, this.#model.range[1]) : placeWords[axis](x)}${text && ` · ${text}`}`, values);
  }

  #readout(place) {
    const { data, kinds, names, n, amount = figures } = this.#model;
    if (names) return data.slice(1).flatMap((line, at) => (names[at] ? [`${names[at]} ${amount(line[nearest(line, place)])}`] : [])).join(", ");
    const at = (kind) => data[kinds.indexOf(kind) + 1] ?? [];
    const index = nearest(at("mean"), place);
    const [mean, low, high] = [at("mean"), at("low"), at("high")].map((line) => line[index]);
    if (!known(mean)) return "nothing known";
    const spread = known(low) && known(high) && high > low ? ` (${amount(low)} to ${amount(high)}${n > 1 ? `, n ${n}` : ""})` : "";
    return `${amount(mean)}${spread}`;
  }

  /** Arrows move the cursor, with Shift by ten; + and - zoom around it; 0 or Escape shows all. */
  #key(event) {
    if (!this.#plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const [min, max] = this.range;
    const centre = this.#model.data[0][this.#place] ?? (min + max) / 2;
    if (step) this.#step(step * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home" || event.key === "End") this.#step(event.key === "Home" ? -1e9 : 1e9);
    else if (event.key === "+" || event.key === "=") this.zoom([centre - (centre - min) / 2, centre + (max - centre) / 2]);
    else if (event.key === "-") this.#bounded(centre - (centre - min) * 2, centre + (max - centre) * 2);
    else if (event.key === "0" || (event.key === "Escape" && this.#model.zoomed)) this.zoom(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #step(by) {
    const plot = this.#plot;
    const xs = this.#model.data[0];
    const [min, max] = this.range;
    const first = xs.findIndex((x) => x >= min);
    const last = xs.findLastIndex((x) => x <= max);
    if (first < 0 || last < first) return;
    const from = this.#place === null || this.#place < first || this.#place > last ? (by > 0 ? first - 1 : last + 1) : this.#place;
    const line = this.#model.data[this.#model.kinds.indexOf("mean") + 1 || 1];
    let place = Math.min(last, Math.max(first, from + by));
    while (!this.#model.lanes && !known(line[place]) && place + Math.sign(by) >= first && place + Math.sign(by) <= last) place += Math.sign(by);
    plot.setCursor({ left: plot.valToPos(xs[place], "x"), top: 10 });
    this.#at(place); // of several points on the same pixel, the plot reports only the first
  }
}

const pens = (plot) => ({ ...plot.bbox, draw: plot.ctx, ink: colours(), ratio: devicePixelRatio });

/** Draw nothing outside the plot until `restore`. */
function clip({ ctx, bbox: { left, top, width, height } }) {
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
}

/** The points of a line without a neighbour: only a dot shows them. */
function alone({ data }, place) {
  const line = data[place];
  const places = line.flatMap((value, at) => (value === undefined ? [] : [at]));
  return places.filter((at, order) => known(line[at]) && !known(line[places[order - 1]]) && !known(line[places[order + 1]]));
}

/** The width of the y axis: of its longest label. */
const wide = (_, labels) => Math.max(56, 16 + 7 * Math.max(0, ...(labels ?? []).map(({ length }) => length)));

/** A small margin above and below; a flat line lies in the middle. */
function padded(_, low, high) {
  if (!known(low) || !known(high)) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

/** A logarithmic scale; with values of both signs one that is linear around 0. */
function logarithmic(data) {
  let [least, signed] = [Infinity, false];
  for (const line of data.slice(1)) {
    for (const value of line) {
      if (!known(value)) continue;
      if (value <= 0) signed = true;
      if (value) least = Math.min(least, Math.abs(value));
    }
  }
  return signed ? { distr: 4, asinh: least === Infinity ? 1 : Math.max(least, 1e-9) } : { distr: 3 };
}

/** Times of day, and the date where a day begins or each step is a day. */
function times(_, splits, _axis, _space, step) {
  return splits.map((t, place) => {
    const day = new Date(t * 1000);
    const begins = day.getHours() === 0 && day.getMinutes() === 0;
    return begins || step >= 86_400 ? date(t) : place === 0 && splits.at(-1) - t > 86_400 ? `${date(t)} ${clock(t)}` : step < 60 ? clockSeconds(t) : clock(t);
  });
}
