// Makes the lines of a chart from the page `curves`: over a chosen axis, with gaps, lost stretches and a band over seeds.
//
// A point after the checkpoint from which a program resumed is not kept: it is drawn faintly, outside the curve. If nothing
// was recorded in a period, the line has a gap.

import { known } from "../text.js";

const READING_S = 10; // single readings come when they come; rows of a longer period are exactly one period apart
const GRID = 800; // points of a mean over seeds
const MOST_LOST = 20; // stretches that are drawn
const LEAST_RATES = 12;

export const AXES = {
  wall: { word: "time", unit: "" },
  steps: { word: "steps", unit: "steps" },
  hours: { word: "trained hours", unit: "h" },
  dollars: { word: "dollars", unit: "$" },
};

/** The values that all curves of an answer share. `slots` has the number of slots by level. */
export const frame = ({ period_s, until_s, until_wall_s }, slots, usd_per_hour) => ({ period_s, offset_s: until_wall_s - until_s, slots, usd_per_hour });

/** The longest time between two points of one line. */
const longest = ({ period_s }) => period_s * (period_s > READING_S ? 1.5 : 2.5);

/** Points of one program, oldest first: {t, x, y, low, high, kept, gap}. `t` is wall time; `scale` turns a return into a score. */
export function points(subject, name, axis, about, scale = (value) => value) {
  const { least, mean, most } = measured(subject.series[name]);
  const found = [];
  let [hours, usd, before] = [0, 0];
  let gap = false; // also if the first values after it are not known
  subject.at_s.forEach((at_s, place) => {
    const since_s = before === undefined ? about.period_s : Math.max(0, at_s - before);
    const hour = Math.min(since_s, about.period_s) / 3600;
    if (subject.worker_phase[place] === "training" || !known(subject.worker_phase[place])) hours += hour;
    const share = about.slots[subject.level[place]];
    usd += (hour * (about.usd_per_hour ?? NaN)) / (share || 1);
    const t = at_s + about.offset_s;
    const x = { wall: t, steps: subject.env_steps[place], hours, dollars: usd }[axis];
    gap ||= since_s > longest(about);
    if (known(x) && known(mean[place])) {
      const [y, low, high] = [mean[place], least[place], most[place]].map(scale);
      found.push({ t, x, y, low, high, kept: subject.kept[place], gap });
      gap = false;
    }
    before = at_s;
  });
  return found;
}

/** A total has only its newest values, and a series without bounds only its means: they replace the missing values. */
const measured = ({ newest, mean = newest, least = mean, most = mean }) => ({ least, mean, most });

/** The kept points as one line, broken at gaps and where a stretch was lost. */
export function keptLine(list, value = ({ y }) => y) {
  const line = { xs: [], ys: [] };
  list.forEach((point, place) => {
    if (!point.kept) return;
    const before = list[place - 1];
    if (before && (point.gap || !before.kept) && line.xs.length && point.x > line.xs.at(-1)) {
      line.xs.push((line.xs.at(-1) + point.x) / 2);
      line.ys.push(null);
    }
    line.xs.push(point.x);
    line.ys.push(value(point));
  });
  return line;
}

/** The newest lost stretches, each a line of its own that begins at the kept point before it. */
export function lostLines(list) {
  const found = [];
  list.forEach((point, place) => {
    if (point.kept) return;
    const before = list[place - 1];
    if (!before || before.kept || point.gap || point.x < before.x) {
      const from = before?.kept && !point.gap && before.x < point.x ? [before] : [];
      found.push({ xs: from.map(({ x }) => x), ys: from.map(({ y }) => y) });
    }
    found.at(-1).xs.push(point.x);
    found.at(-1).ys.push(point.y);
  });
  return found.slice(-MOST_LOST);
}

/**
 * Mean and standard error over `n` lines: {n, xs, mean, low, high}; null if there are fewer than two. A line also counts inside
 * its own gap, by interpolation, if at least half of the lines are known there. All lines begin before the mean begins, and
 * end after it ends. Otherwise the mean would jump, and the jump would look like learning. So a line that is shorter than half
 * of the whole, such as that of a seed that has just begun, does not count.
 */
export function average(lines, grid = GRID) {
  const ends = (found) => [found.map(({ xs }) => xs[0]), found.map(({ xs }) => xs.at(-1))];
  const [firsts, lasts] = ends(lines.filter(({ xs }) => xs.length > 1));
  const half = (Math.max(...lasts) - Math.min(...firsts)) / 2;
  const drawn = lines.filter(({ xs }) => xs.length > 1 && xs.at(-1) - xs[0] >= half);
  const [from, to] = [Math.max(...ends(drawn)[0]), Math.min(...ends(drawn)[1])];
  if (drawn.length < 2 || from >= to) return null;
  const whole = drawn.map(closed);
  const enough = (x) => {
    const there = drawn.filter((line) => known(valueAt(line, x))).length;
    return there >= 1 && there * 2 >= drawn.length;
  };
  const even = Array.from({ length: grid + 1 }, (_, place) => (place === grid ? to : from + ((to - from) * place) / grid));
  const found = { n: drawn.length, xs: [...new Set([...even, ...pauses(drawn, from, to).filter((x) => !enough(x))])].sort((one, other) => one - other), mean: [], low: [], high: [] };
  for (const x of found.xs) {
    const values = whole.map((line) => valueAt(line, x)).filter(known);
    const mean = enough(x) && values.length >= 2 ? meanOf(values) : null;
    const square = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1);
    const error = mean === null ? null : Math.sqrt(square / values.length);
    found.mean.push(mean);
    found.low.push(mean === null ? null : mean - error);
    found.high.push(mean === null ? null : mean + error);
  }
  return found;
}

/** A moment in each time in which the same lines pause: a pause may lie between two points of an even grid. */
function pauses(lines, from, to) {
  const ends = lines.flatMap(({ xs, ys }) => ys.flatMap((y, place) => (known(y) ? [] : [xs[place - 1], xs[place + 1]])));
  const cuts = [from, ...ends.filter((x) => x > from && x < to), to].sort((one, other) => one - other);
  return cuts.slice(1).map((cut, place) => (cut + cuts[place]) / 2);
}

/** The line without its gaps. */
const closed = ({ xs, ys }) => ({ xs: xs.filter((_, place) => known(ys[place])), ys: ys.filter(known) });

/** A line's value between two of its points; null outside, and inside a gap. */
export function valueAt({ xs, ys }, x) {
  let [low, high] = [0, xs.length - 1];
  if (high < 0 || x < xs[0] || x > xs[high]) return null;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  if (!known(ys[low]) || !known(ys[high])) return xs[low] === x ? ys[low] : null;
  return xs[high] === xs[low] ? ys[high] : ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
}

/**
 * Lines on one sorted axis, as uPlot takes them: null at every x in a gap and beyond both ends of the line, undefined where only
 * other lines have a point.
 */
export function joined(lines) {
  const xs = [...new Set(lines.flatMap((line) => line.xs))].sort((one, other) => one - other);
  const places = new Map(xs.map((x, place) => [x, place]));
  return [
    xs,
    ...lines.map((line) => {
      const ys = new Array(xs.length).fill(undefined);
      line.xs.forEach((x, place) => (ys[places.get(x)] = line.ys[place]));
      let [last, gap] = [-1, true];
      ys.forEach((y, place) => {
        if (known(y) && gap) ys.fill(null, last + 1, place);
        if (known(y)) last = place;
        gap = y === null || (gap && !known(y));
      });
      return ys.fill(null, last + 1);
    }),
  ];
}

const NEAR = 200; // most points of other lines between two points of the same line

/** The place nearest to `place` at which a line is known, without crossing a gap (null). */
export function nearest(line, place) {
  let [back, on] = [true, true];
  for (let off = 0; off < NEAR && (back || on); off += 1) {
    if (back && known(line[place - off])) return place - off;
    if (on && known(line[place + off])) return place + off;
    back &&= line[place - off] !== null;
    on &&= line[place + off] !== null;
  }
  return place;
}

/**
 * A chart of one game: {data, kinds, n, averaged, last, toX}. `kinds` names each line: lost, seed, low, high, mean.
 * `averaged`: whether there is a mean of `n` lines; lines that have no time in common have none.
 * `toX` turns a moment into a place on the axis, for bands.
 */
export function chartOf(subjects, name, axis, about, scale) {
  const lists = subjects.map((subject) => points(subject, name, axis, about, scale)).filter((list) => list.length);
  const seeds = lists.map((list) => keptLine(list));
  const over = average(seeds);
  const lines = lists.flatMap(lostLines).map((line) => ({ kind: "lost", ...line }));
  if (seeds.length > 1) {
    lines.push(...seeds.map((line) => ({ kind: "seed", ...line })));
    for (const kind of over ? ["low", "high", "mean"] : []) lines.push({ kind, xs: over.xs, ys: over[kind] });
  } else if (lists.length) {
    const [list] = [...lists].sort((one, other) => other.length - one.length);
    lines.push({ kind: "low", ...keptLine(list, ({ low }) => low) }, { kind: "high", ...keptLine(list, ({ high }) => high) });
    lines.push({ kind: "mean", ...keptLine(list) });
  }
  const newest = lists.map((list) => list.findLast(({ kept }) => kept)?.y).filter(known);
  return {
    data: joined(lines),
    kinds: lines.map(({ kind }) => kind),
    n: over?.n ?? lists.length,
    averaged: Boolean(over),
    last: meanOf(newest),
    toX: axis === "wall" ? (t) => t : placeAt(lists),
  };
}

/**
 * A chart of chosen lines: {data, kinds, inks, names, last, toX}. `groups` are [{name, ink, subjects}]: one program, or the
 * programs whose mean is drawn with its standard error. `smooth` is the weight of the past, 0 for none; the original stays
 * behind its smoothed line.
 */
export function linesOf(groups, name, axis, about, { smooth = 0, scale = () => undefined } = {}) {
  const lines = [];
  const every = [];
  const last = new Map();
  for (const { name: title, ink, subjects } of groups) {
    const lists = subjects.filter(({ series }) => series[name]).map((subject) => points(subject, name, axis, about, scale(subject.program)));
    const kept = lists.map((list) => keptLine(list));
    const over = kept.length > 1 ? average(kept) : null;
    const line = over ? { xs: over.xs, ys: over.mean } : kept.length === 1 ? kept[0] : { xs: [], ys: [] };
    if (!over && kept.length > 1) lines.push(...kept.map((seed) => ({ kind: "seed", ...seed }))); // they have no time in common
    every.push(...lists);
    if (kept.length === 1) lines.push(...lists.flatMap(lostLines).map((lost) => ({ kind: "lost", ...lost })));
    if (over && !smooth) for (const kind of ["low", "high"]) lines.push({ kind, xs: over.xs, ys: over[kind] });
    if (smooth) lines.push({ kind: "seed", ...line });
    lines.push({ kind: "line", ink, title, ...(smooth ? smoothed(line, smooth) : line) });
    const ends = (over ? [line] : kept).map(({ ys }) => ys.findLast(known)).filter(known);
    last.set(title, meanOf(ends));
  }
  return {
    data: joined(lines),
    kinds: lines.map(({ kind }) => kind),
    inks: lines.map(({ ink }) => ink ?? 0),
    names: lines.map(({ title }) => title ?? ""),
    last,
    toX: axis === "wall" ? (t) => t : placeAt(every),
  };
}

/** The exponential mean of a line: each value weighs `past` times as much as the next. The first values are not biased to 0. */
export function smoothed({ xs, ys }, past) {
  let [sum, weight] = [0, 0];
  return { xs, ys: ys.map((y) => {
    if (!known(y)) return y;
    sum = past * sum + (1 - past) * y;
    weight = past * weight + (1 - past);
    return sum / weight;
  }) };
}

/** The chart's lines as CSV: a row a point. */
export function csvOf(models) {
  const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = models.flatMap(({ figure, axis, data, names }) => names.flatMap((name, place) => (name
    ? data[0].flatMap((x, at) => (known(data[place + 1][at]) ? [[cell(name), cell(figure), axis === "wall" ? new Date(x * 1000).toISOString() : x, data[place + 1][at]].join()] : []))
    : [])));
  return [`line,figure,${models[0]?.axis === "wall" ? "time" : models[0]?.axis},value`, ...rows].join("\n") + "\n";
}

export const meanOf = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

/** The mean place on the axis at which the programs were at a moment. */
function placeAt(lists) {
  const lines = lists.map((list) => ({ xs: list.map(({ t }) => t), ys: list.map(({ x }) => x) }));
  return (t) => meanOf(lines.map((line) => valueAt(line, t)).filter(known));
}

/** The human-normalised score: 0 is random play, 1 a professional human tester. */
export const normalised = ([random, human]) => (value) => (known(value) ? (value - random) / (human - random) : value);

/** The usual speed of a program: the median of its recorded speeds; null for a few. */
export function usual(subject) {
  const rates = (subject?.series.steps_per_s?.mean ?? []).filter((rate) => known(rate) && rate > 0).sort((one, other) => one - other);
  return rates.length >= LEAST_RATES ? rates[rates.length >> 1] : null;
}

/** A program's line of a few pixels: the path of an SVG, empty with fewer than two points. */
export const sparkline = (subject, name, width, height) => pathOf(sketch(subject, name), width, height);

/** The mean of several programs as such a path. */
export function meanSparkline(subjects, name, width, height) {
  const lines = subjects.map((subject) => sketch(subject, name)).filter(({ ys }) => ys.some(known));
  const over = lines.length > 1 ? average(lines, width) : null;
  return pathOf(over ? { xs: over.xs, ys: over.mean } : lines[0] ?? { xs: [], ys: [] }, width, height);
}

/** All points in time, also those that were computed again: at this size only the way of the line counts. Gaps stay gaps. */
function sketch({ at_s, series }, name) {
  const { mean } = measured(series[name]);
  const steps = at_s.slice(1).map((at, place) => at - at_s[place]).sort((one, other) => one - other);
  const most = 2.5 * steps[steps.length >> 1]; // two attempts have rows within one period
  const gap = (place) => at_s[place] - at_s[place - 1] > most;
  return { xs: at_s.flatMap((at, place) => (gap(place) ? [(at + at_s[place - 1]) / 2, at] : [at])), ys: mean.flatMap((y, place) => (gap(place) ? [null, y] : [y])) };
}

function pathOf({ xs, ys }, width, height) {
  const found = ys.filter(known);
  if (found.length < 2) return "";
  const [least, most] = [Math.min(...found), Math.max(...found)];
  const long = xs.at(-1) - xs[0] || 1;
  let pen = "M";
  return ys.map((value, place) => {
    if (!known(value)) return (pen = "M", "");
    const x = ((xs[place] - xs[0]) / long) * width;
    const y = height - 1 - ((value - least) / (most - least || 1)) * (height - 2);
    const part = `${pen}${x.toFixed(1)} ${y.toFixed(1)}${pen === "M" && !known(ys[place + 1]) ? "h1" : ""}`;
    pen = "L";
    return part;
  }).join("");
}

/** The chart's lines at these places in about 40 rows [x, value, ...], for readers who cannot see it: where any is known. */
export function asTable(data, places) {
  const rows = data[0].map((x, at) => [x, ...places.map((place) => data[place]?.[at])]).filter((row) => row.slice(1).some(known));
  const every = Math.max(1, Math.ceil(rows.length / 40));
  return rows.filter((_, at) => at % every === 0 || at === rows.length - 1);
}
