// How well: small multiples, one chart per game, drawn only while they are visible.

import { AXES, asTable, chartOf, frame, normalised } from "../shape/curves.js";
import { RETURN } from "../shape/route.js";
import { grouped, meanNow, trainings } from "../shape/status.js";
import { amountOf, figures, UNKNOWN } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";

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

/** The games of the current page of charts. */
export function shownGames(status, choice) {
  const all = grouped(trainings(status.programs)).map(([game, views]) => [game, views.map(({ name }) => name)]);
  const page = Math.min(choice.page, Math.max(0, Math.ceil(all.length / MOST_CHARTS) - 1));
  return { all, page, shown: all.slice(page * MOST_CHARTS, (page + 1) * MOST_CHARTS) };
}

/** The panel. `charts` keeps the drawn charts; `on.choose(part)` changes axis, series, human, page or tables. */
export function well({ status, curves, choice, error, charts, on }) {
  if (!status) return html`<p class="muted">Loading …</p>`;
  const { all, page, shown } = shownGames(status, choice);
  const words = choices(status);
  const [series] = choice.series;
  const silent = curves ? shown.filter(([game, names]) => !modelOf(game, names, curves, choice, charts).data[0].length) : [];
  const drawn = shown.filter((group) => !silent.includes(group));
  charts.keep(drawn.map(([game]) => game));
  return html`
    <div class="tools">
      ${radios("Axis", "axis", AXES, choice.axis, (axis) => on.choose({ axis, zoom: null }))}
      <label>Show <select @change=${(event) => on.choose({ series: [event.target.value] })}>
        ${[...words].map(([name, word]) => html`<option value=${name} ?selected=${name === series}>${word}</option>`)}
      </select></label>
      ${humanBox(choice, on)}
      ${tablesBox(choice, on)}
      ${zoomed(choice, on)}
    </div>
    ${error ? html`<p class="trouble">Curves: ${error}</p>` : nothing}
    ${legend(["trial", "level", "reboot", "rollback", "settings", "lost"])}
    <div class="charts">${repeat(drawn, ([game]) => game, ([game, names]) => cell(game, names, status, curves, choice, words, charts))}</div>
    ${silent.length ? html`<p class="muted">No ${words.get(series)} in this time: ${silent.map(([game]) => game).join(", ")}.</p>` : nothing}
    ${all.length > MOST_CHARTS ? pager(all.length, page, on) : nothing}`;
}

function modelOf(game, names, curves, choice, charts) {
  return charts.model(game, [curves, choice.axis, choice.series[0], choice.human], ({ slots, usd_per_hour, references }) => {
    const [series] = choice.series;
    const reference = series === RETURN && choice.human ? references[game] : undefined;
    const scale = reference ? normalised(reference) : (value) => value;
    const has = curves.subjects.filter(({ program, series: found }) => names.includes(program) && found[series]);
    const model = chartOf(has, series, choice.axis, frame(curves, slots, usd_per_hour), scale);
    return { ...model, programs: names, axis: choice.axis, human: Boolean(reference), scale: () => scale, amount: amountOf(series) };
  });
}

export const humanBox = (choice, on) => html`<label><input type="checkbox" .checked=${choice.human} ?disabled=${!choice.series.includes(RETURN)}
  @change=${(event) => on.choose({ human: event.target.checked })}> human-normalised (random 0, human 1)</label>`;

export const tablesBox = (choice, on) => html`<label><input type="checkbox" .checked=${choice.tables} @change=${(event) => on.choose({ tables: event.target.checked })}> show as tables</label>`;

/** The way back from a zoom, also without a keyboard or a second click. */
export const zoomed = (choice, on) => (choice.zoom ? html`<button @click=${() => on.choose({ zoom: null })}>Show all</button>` : nothing);

export const radios = (title, name, choices, chosen, choose) => html`<fieldset class="choice"><legend>${title}</legend>${
  Object.entries(choices).map(([key, { word }]) => html`<label><input type="radio" name=${name} value=${key}
    .checked=${key === chosen} @change=${() => choose(key)}><span>${word}</span></label>`)}</fieldset>`;

export const BANDS = { trial: "trial of a level", level: "change of level", reboot: "reboot", rollback: "rollback", settings: "change of settings", stall: "stall, death", lost: "lost, computed again" };

/** The legend of the bands behind the curves. It does not depend on the data: a row that comes late would move the charts. */
export const legend = (kinds) => html`<ul class="legend">${kinds.map((kind) => html`<li><span class="swatch ${kind}" aria-hidden="true"></span>${BANDS[kind]}</li>`)}</ul>`;

function pager(total, page, on) {
  const last = Math.ceil(total / MOST_CHARTS) - 1;
  return html`<p class="pager"><button ?disabled=${page === 0} @click=${() => on.choose({ page: page - 1 })}>Earlier games</button>
    <span>${page * MOST_CHARTS + 1} to ${Math.min(total, (page + 1) * MOST_CHARTS)} of ${total} games</span>
    <button ?disabled=${page === last} @click=${() => on.choose({ page: page + 1 })}>Later games</button></p>`;
}

/** The place of a chart of this name. */
export const plot = (name, label, now = "now") => html`<div class="plot" data-game=${name} role="slider" tabindex="0"
  aria-label="${label}. Arrow keys move the cursor, plus and minus zoom, 0 shows all." aria-valuemin="0" aria-valuemax="100" aria-valuenow="0" aria-valuetext=${now}></div>`;

function cell(game, names, { programs }, curves, choice, words, charts) {
  const drawn = curves ? modelOf(game, names, curves, choice, charts) : null;
  const value = drawn ? drawn.amount(choice.zoom ? drawn.last : meanNow(programs.filter(({ name }) => names.includes(name)), choice.series[0], drawn.scale)) : UNKNOWN;
  const word = choice.human && drawn?.human ? "human-normalised score" : words.get(choice.series[0]);
  return html`<figure class="chart">
    <figcaption><strong>${game}</strong> <span class="value">${value}</span>
      <span class="readout" aria-hidden="true"></span>
      ${drawn?.n > 1 ? html`<span class="muted">${drawn.averaged ? "mean of n" : "n"} ${drawn.n}${names.length > drawn.n ? ` of ${names.length}` : ""}, ${drawn.averaged ? "± standard error" : "too far apart for a mean"}</span>` : nothing}</figcaption>
    ${plot(game, `${game}: ${word}`, `now ${value}`)}
    ${choice.tables && drawn ? table(word, choice.axis, [word, "from", "to"], asTable(drawn.data, ["mean", "low", "high"].map((kind) => drawn.kinds.indexOf(kind) + 1 || -1)), drawn.amount) : nothing}
  </figure>`;
}

/** The values of a chart by their place on the axis, each row [x, value, ...]. */
export function table(word, axis, heads, rows, amount) {
  const place = (x) => (axis === "wall" ? new Date(x * 1000).toLocaleString() : figures(x));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="table of ${word}"><table>
    <thead><tr><th scope="col">${AXES[axis].word}</th>${heads.map((head) => html`<th scope="col" class="number">${head}</th>`)}</tr></thead>
    <tbody>${rows.map(([x, ...values]) => html`<tr><th scope="row">${place(x)}</th>${values.map((each) => html`<td class="number">${amount(each)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}
