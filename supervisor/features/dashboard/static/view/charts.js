// The drawn charts of a page, by name. A chart is made when it comes into view, and its model once per answer and choice.

import { behind } from "../shape/bands.js";
import { Chart } from "./chart.js";

export class Charts {
  #drawn = new Map();
  #models = new Map();
  #seen = new Set();
  #watch = new IntersectionObserver((entries) => this.#look(entries), { rootMargin: "200px" });
  #watched = new Set();

  /** `about()` is {slots, usd_per_hour, references, bands, window: [from_s, to_s], zoom}; `zoom(range)` keeps the reader's zoom. */
  constructor(about, zoom) {
    this.about = about;
    this.zoom = zoom;
  }

  /** Keep the charts of these names, which are on the page, and destroy all others. */
  keep(names) {
    for (const [name, { chart }] of this.#drawn) {
      if (names.includes(name)) continue;
      chart.destroy();
      this.#drawn.delete(name);
      this.#models.delete(name);
    }
  }

  /** The model {data, kinds, axis, programs, own, ...} of a chart: `make(about)` is called if the stamp has changed. */
  model(name, stamp, make) {
    const made = this.#models.get(name);
    if (made && made.stamp.length === stamp.length && made.stamp.every((part, place) => part === stamp[place])) return made.model;
    const model = make(this.about());
    this.#models.set(name, { stamp, model });
    return model;
  }

  /** After the page is rendered: watch new elements, and update the visible charts. */
  sync(root) {
    for (const place of root.querySelectorAll(".plot")) {
      if (this.#watched.has(place)) continue;
      this.#watched.add(place);
      this.#watch.observe(place);
    }
    for (const place of [...this.#watched].filter(({ isConnected }) => !isConnected)) {
      this.#watch.unobserve(place);
      for (const kept of [this.#watched, this.#seen]) kept.delete(place);
    }
    for (const place of this.#seen) this.#draw(place);
  }

  #look(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.#seen.add(target);
      else this.#seen.delete(target);
      if (isIntersecting) this.#draw(target);
    }
  }

  #draw(place) {
    const { game: name } = place.dataset;
    const model = this.#models.get(name)?.model;
    if (!model) return;
    let found = this.#drawn.get(name);
    if (found?.place !== place) {
      found?.chart.destroy();
      const chart = new Chart(place, (text, values) => showReadout(place, text, values, this.held(name)?.amount), this.zoom);
      this.#drawn.set(name, found = { chart, place });
    }
    const { bands, window, zoom } = this.about();
    const xs = model.data[0];
    const whole = model.axis === "wall" ? window : [xs[0] ?? 0, xs.at(-1) ?? 1];
    const range = zoom ?? whole;
    const now = [model, bands, ...range];
    if (found.shown?.every((part, at) => part === now[at])) return;
    found.shown = now;
    found.chart.update({ ...model, bands: behind(bands, model.programs, model.own), range, whole, zoomed: Boolean(zoom) });
  }

  recolour() { for (const { chart } of this.#drawn.values()) chart.recolour(); }

  /** The model of a chart as it is drawn, and the chart. */
  held(name) { return this.#models.get(name)?.model; }
  of(name) { return this.#drawn.get(name)?.chart; }
}

/** Show the text for the point under the cursor, on the screen and for screen readers; in a legend, the value of each line. */
function showReadout(place, text, values, amount) {
  const figure = place.parentElement;
  figure.querySelector(".readout").textContent = text;
  for (const each of figure.querySelectorAll("output[data-line]")) each.textContent = values ? amount(values[each.dataset.line]) : "";
  if (text && document.activeElement === place) place.setAttribute("aria-valuetext", text);
}
