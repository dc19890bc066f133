// How well: small multiples, one chart per game, drawn only while they are visible.

import { behind } from "../shape/bands.js";
import { AXES, asTable, chartOf, frame, normalised } from "../shape/curves.js";
import { groupOf } from "../shape/status.js";
import { figures, UNKNOWN } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { Chart } from "./chart.js";

export const MOST_CHARTS = 12;
const SERIES = {
  mean_return: "mean return", steps_per_s: "steps a second", loss: "loss", q_max_abs: "largest |Q|", entropy: "entropy",
  grad_norm: "gradient norm", memory_bytes: "memory",
};

/** The figures that a chart can show, with their labels: those of any training, then those that scripts name themselves. */
export function choices({ programs }) {
  const own = programs.flatMap((view) => Object.keys(view.figures ?? {})).filter((name) => !name.includes(",")).sort();
  return new Map([...Object.entries(SERIES), ...own.map((name) => [name, name])]);
}

/** Games with the programs of each, in the order of their names. */
export function games(programs) {
  const found = new Map();
  for (const view of programs) found.set(groupOf(view), [...(found.get(groupOf(view)) ?? []), view.name]);
  return [...found].sort();
}

/** The games of the current page of charts. */
export function shownGames(status, choice) {
  const all = games(status.programs);
  const page = Math.min(choice.page, Math.max(0, Math.ceil(all.length / MOST_CHARTS) - 1));
  return { all, page, shown: all.slice(page * MOST_CHARTS, (page + 1) * MOST_CHARTS) };
}

/** The panel. `charts` keeps the drawn charts; `on.choose(part)` changes axis, series, human, page or tables. */
export function well({ status, curves, choice, error, charts, on }) {
  if (!status) return html`<p class="muted">Loading …</p>`;
  const { all, page, shown } = shownGames(status, choice);
  const words = choices(status);
  const silent = curves ? shown.filter(([game, names]) => !charts.model(game, names, curves, choice).data[0].length) : [];
  const drawn = shown.filter((group) => !silent.includes(group));
  charts.keep(drawn.map(([game]) => game));
  return html`
    <div class="tools">
      ${radios("Axis", "axis", AXES, choice.axis, (axis) => on.choose({ axis }))}
      <label>Show <select @change=${(event) => on.choose({ series: event.target.value })}>
        ${[...words].map(([name, word]) => html`<option value=${name} ?selected=${name === choice.series}>${word}</option>`)}
      </select></label>
      <label><input type="checkbox" .checked=${choice.human} ?disabled=${choice.series !== "mean_return"}
        @change=${(event) => on.choose({ human: event.target.checked })}> human-normalised (random 0, human 1)</label>
      <label><input type="checkbox" .checked=${choice.tables} @change=${(event) => on.choose({ tables: event.target.checked })}> show as tables</label>
    </div>
    ${error ? html`<p class="trouble">Curves: ${error}</p>` : nothing}
    ${legend(charts)}
    <div class="charts">${repeat(drawn, ([game]) => game, ([game, names]) => cell(game, names, curves, choice, words, charts))}</div>
    ${silent.length ? html`<p class="muted">No ${words.get(choice.series)} in this time: ${silent.map(([game]) => game).join(", ")}.</p>` : nothing}
    ${all.length > MOST_CHARTS ? pager(all.length, page, on) : nothing}`;
}

const radios = (title, name, choices, chosen, choose) => html`<fieldset class="choice"><legend>${title}</legend>${
  Object.entries(choices).map(([key, { word }]) => html`<label><input type="radio" name=${name} value=${key}
    .checked=${key === chosen} @change=${() => choose(key)}><span>${word}</span></label>`)}</fieldset>`;

/** The legend of the bands behind the curves, for the kinds that occur. */
function legend(charts) {
  const kinds = new Set(charts.about().bands.map(({ kind }) => kind));
  const rows = [["trial", "trial of a level"], ["level", "change of level"], ["reboot", "reboot"], ["rollback", "rollback"]];
  const found = rows.filter(([kind]) => kinds.has(kind));
  return html`<ul class="legend">${found.map(([kind, word]) => html`<li><span class="swatch ${kind}" aria-hidden="true"></span>${word}</li>`)}
    <li><span class="swatch lost" aria-hidden="true"></span>lost, computed again</li></ul>`;
}

function pager(total, page, on) {
  const last = Math.ceil(total / MOST_CHARTS) - 1;
  return html`<p class="pager"><button ?disabled=${page === 0} @click=${() => on.choose({ page: page - 1 })}>Earlier games</button>
    <span>${page * MOST_CHARTS + 1} to ${Math.min(total, (page + 1) * MOST_CHARTS)} of ${total} games</span>
    <button ?disabled=${page === last} @click=${() => on.choose({ page: page + 1 })}>Later games</button></p>`;
}

function cell(game, names, curves, choice, words, charts) {
  const drawn = curves ? charts.model(game, names, curves, choice) : null;
  const value = drawn ? figures(drawn.last) : UNKNOWN;
  const word = choice.human && drawn?.human ? "human-normalised score" : words.get(choice.series);
  return html`<figure class="chart">
    <figcaption><strong>${game}</strong> <span class="value">${value}</span>
      <span class="readout" aria-hidden="true"></span>
      ${drawn?.n > 1 ? html`<span class="muted">mean of n ${drawn.n}${names.length > drawn.n ? ` of ${names.length}` : ""}, ± standard error</span>` : nothing}</figcaption>
    <div class="plot" data-game=${game} role="slider" tabindex="0" aria-label="${game}: ${word}. Arrow keys move the cursor, plus and minus zoom, 0 shows all."
      aria-valuemin="0" aria-valuemax="100" aria-valuenow="0" aria-valuetext="now ${value}"></div>
    ${choice.tables && drawn ? table(drawn, word, choice.axis) : nothing}
  </figure>`;
}

function table(drawn, word, axis) {
  const rows = asTable(drawn);
  const place = (x) => (axis === "wall" ? new Date(x * 1000).toLocaleString() : figures(x));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="table"><table>
    <thead><tr><th scope="col">${AXES[axis].word}</th><th scope="col">${word}</th><th scope="col">from</th><th scope="col">to</th></tr></thead>
    <tbody>${rows.map(([x, y, low, high]) => html`<tr><th scope="row">${place(x)}</th><td>${figures(y)}</td><td>${figures(low)}</td><td>${figures(high)}</td></tr>`)}</tbody>
  </table></div>`;
}

/** The charts that are drawn, by game. A chart is made when it comes into view. */
export class Charts {
  #drawn = new Map();
  #models = new Map();
  #seen = new Set();
  #watch = new IntersectionObserver((entries) => this.#look(entries), { rootMargin: "200px" });
  #watched = new Set();

  /** `about()` is {slots, usd_per_hour, references, bands, window: [from_s, to_s]}. */
  constructor(about) {
    this.about = about;
  }

  /** Keep the charts of these games, which are on the page, and destroy all others. */
  keep(games) {
    for (const [game, { chart }] of this.#drawn) {
      if (games.includes(game)) continue;
      chart.destroy();
      this.#drawn.delete(game);
    }
  }

  /** The model of a game's chart, made once per answer and choice. */
  model(game, names, curves, choice) {
    const key = [curves.until_s, choice.axis, choice.series, choice.human].join();
    const made = this.#models.get(game);
    if (made?.key === key && made.curves === curves) return made.model;
    const { slots, usd_per_hour, references } = this.about();
    const reference = choice.series === "mean_return" && choice.human ? references[game] : undefined;
    const subjects = curves.subjects.filter(({ program }) => names.includes(program));
    const has = subjects.filter(({ series }) => series[choice.series]);
    const model = chartOf(has, choice.series, choice.axis, frame(curves, slots, usd_per_hour), reference && normalised(reference));
    this.#models.set(game, { key, curves, model: { ...model, names, axis: choice.axis, human: Boolean(reference) } });
    return this.#models.get(game).model;
  }

  /** After the panel is rendered: watch new elements, and update the visible charts. */
  sync(root) {
    for (const place of root.querySelectorAll(".plot")) {
      if (this.#watched.has(place)) continue;
      this.#watched.add(place);
      this.#watch.observe(place);
    }
    for (const place of this.#watched) {
      if (place.isConnected) continue;
      this.#watch.unobserve(place);
      this.#watched.delete(place);
      this.#seen.delete(place);
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
    const { game } = place.dataset;
    const model = this.#models.get(game)?.model;
    if (!model || !place.isConnected) return;
    let found = this.#drawn.get(game);
    if (found?.place !== place) {
      found?.chart.destroy();
      found = { place, chart: new Chart(place, (text) => showReadout(place, text)), shown: null };
      this.#drawn.set(game, found);
    }
    const { bands, window } = this.about();
    const xs = model.data[0];
    const range = model.axis === "wall" ? window : [xs[0] ?? 0, xs.at(-1) ?? 1];
    const now = [model, bands, ...range];
    if (found.shown?.every((part, at) => part === now[at])) return;
    found.shown = now;
    found.chart.update({ ...model, bands: behind(bands, model.names), range });
  }

  recolour() {
    for (const { chart } of this.#drawn.values()) chart.recolour();
  }

  /** The chart of a game: for tests and the timeline. */
  of(game) {
    return this.#drawn.get(game)?.chart;
  }
}

/** Show the text for the point under the cursor, on the screen and for screen readers. */
function showReadout(place, text) {
  place.parentElement.querySelector(".readout").textContent = text;
  if (text && document.activeElement === place) place.setAttribute("aria-valuetext", text);
}

