// What broke: the timeline over the same window as the curves, and incidents by cause. A click opens the evidence.

import { events, KINDS } from "../shape/bands.js";
import { count, few, known, moment, plural, span } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { Chart } from "./chart.js";
import { prose, shape } from "./shapes.js";

const MOST_CAUSES = 8;
const HINT = "Point at an event, or use the arrow keys; a click or Enter opens it.";

/** `on.cause(group)` opens the incidents of a cause; `all` shows every cause. */
export function broke({ incidents, bands, error, all, on }) {
  const trouble = error ? html`<p class="trouble">Incidents: ${error}</p>` : nothing;
  if (!incidents) return error ? trouble : html`<p class="muted">Loading …</p>`;
  const { causes, until_wall_s } = incidents;
  const shown = all ? causes : causes.slice(0, MOST_CAUSES);
  return html`${trouble}
    ${bands.length ? html`<div class="timeline" role="slider" tabindex="0" aria-valuemin="0" aria-valuemax="100" aria-valuenow="0" aria-valuetext="now"
        aria-label="Timeline of levels, reboots, stalls and rollbacks. Arrow keys move from event to event, Enter opens it."></div>
      <p class="readout" aria-hidden="true"></p>` : nothing}
    ${causes.length ? nothing : html`<p class="calm">${shape("check")} Nothing broke in this time.</p>`}
    <ul class="incidents">${causesOf(shown, until_wall_s, on)}</ul>
    ${causes.length > shown.length ? html`<p><button @click=${on.allCauses}>${plural(causes.length - shown.length, "more cause")}</button></p>` : nothing}`;
}

export const causesOf = (groups, now_s, on) => groups.map((group) => cause(group, now_s, on));

function cause(group, now_s, on) {
  const lost = group.lost_steps ? `, ${count(group.lost_steps)} steps lost` : "";
  return html`<li><button class="plain" @click=${() => on.cause(group)}>
    <span class="times">${group.count} ×</span> <strong>${group.what}</strong>
    <span class="muted">${few(group.programs)}${lost}</span>
    <span class="when">${group.count > 1 ? "last " : ""}${moment(group.newest_wall_s, now_s)}</span>
    <span class="reason">${prose(group.why)}</span>
  </button></li>`;
}

/** The timeline, drawn into the element that `broke` has rendered. */
export class Timeline {
  #chart = null;
  #place = null;
  #events = [];
  #shown = [];

  /** `open(band)` is called with the chosen event; `zoom(range)` as for charts. */
  constructor(open, zoom) {
    this.open = open;
    this.zoom = zoom;
  }

  sync(root, bands, window, zoom) {
    const place = root.querySelector(".timeline");
    if (place !== this.#place) {
      this.#chart?.destroy();
      this.#place = place;
      this.#shown = [];
      this.#chart = place && new Chart(place, (text) => this.#said(text), this.zoom);
      if (place) this.#said("");
      place?.addEventListener("keydown", (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault(); // otherwise the same key press activates the focused button of the new dialog
        this.#choose();
      });
      place?.addEventListener("click", () => this.#choose());
    }
    const range = zoom ?? window;
    const now = [bands, ...range];
    if (!place || this.#shown.every((part, at) => part === now[at]) && this.#shown.length) return;
    this.#shown = now;
    this.#events = events(bands, ...range);
    const xs = this.#events.map(({ from_s }) => from_s);
    this.#chart.update({
      data: [xs, xs.map(() => null)], kinds: ["low"], axis: "wall", lanes: true, bands, range, whole: window, zoomed: Boolean(zoom), toX: (t) => t,
      words: (place_) => this.#words(this.#events[place_]),
    });
  }

  recolour() { this.#chart?.recolour(); }

  #words(band) {
    if (!band) return "";
    const long = known(band.to_s) && band.to_s - band.from_s >= 1 ? `, ${span(band.to_s - band.from_s)}` : "";
    const label = band.label === KINDS[band.kind].word ? band.label : `${["level", "trial"].includes(band.kind) ? "level " : ""}${band.label}`;
    return `${label}${long}${band.why ? ` · ${band.why}` : ""}`;
  }

  #said(text) {
    this.#place.nextElementSibling.textContent = text || HINT;
    if (text && document.activeElement === this.#place) this.#place.setAttribute("aria-valuetext", text);
  }

  #choose() {
    const band = this.#events[this.#chart.place];
    if (band) this.open(band);
  }
}
