// Compare: chosen programs in one chart, and the table to choose them from: searched, filtered, sorted, grouped by game.

import { groupBy, groupOf, grouped, inStates, stateOf, together, trainings, varied } from "../shape/status.js";
import { count, figures, known, plural, UNKNOWN } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { lines } from "./lines.js";
import { card, middle, programLink } from "./program.js";
import { state } from "./shapes.js";
import { meanPath, spark, sparkOf } from "./trained.js";
import { choices } from "./well.js";

const FILTERS = { // key -> [word, whether a program fits]
  "": ["all", () => true],
  look: ["needs a look", (view) => stateOf(view).first !== undefined],
  training: ["training", ({ phase }) => phase === "RUNNING"],
  waiting: ["waiting", ({ phase }) => ["QUEUED", "GATED", "BACKOFF", "STOPPED"].includes(phase)],
  done: ["done", ({ phase }) => phase === "DONE"],
};
const COLUMNS = { name: "Program", mean: "Return", spread: "Spread", best: "Best", rate: "Steps/s", steps: "Steps" }; // by key of `together`

/** The programs that fit the search ("pong lr=1e-4") and the filter, by group, in the chosen order. */
function chosen(programs, { q, only, sort }, settings, of) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const [, fits] = FILTERS[only] ?? FILTERS[""];
  const text = (view) => [view.name, groupOf(view), stateOf(view).word, ...[...settings].map(([key, values]) => `${key}=${values.get(view.name)}`)].join(" ").toLowerCase();
  const found = programs.filter((view) => fits(view) && (!words.length || words.every((word) => text(view).includes(word))));
  const groups = grouped(found, of);
  const key = sort.replace("-", "");
  if (key in COLUMNS && key !== "name") {
    const rank = (views) => together(views)[key] ?? -Infinity;
    groups.sort(([, one], [, other]) => rank(other) - rank(one));
    for (const [, views] of groups) views.sort((one, other) => rank([other]) - rank([one]));
  }
  return sort.startsWith("-") ? groups.reverse() : groups;
}

export function comparePage({ status, pages, errors, choice, charts, open, on }) {
  if (!status) return html`<p class="sentence">&nbsp;</p>`;
  const programs = trainings(status.programs);
  const settings = varied(pages.config?.settings ?? [], programs);
  const of = groupBy(choice.by, settings, programs);
  const groups = chosen(programs, choice, settings, of);
  const number = groups.reduce((sum, [, views]) => sum + views.length, 0);
  const picked = choice.pick.filter((name) => status.programs.some((view) => view.name === name));
  const subjects = new Map((pages.curves?.subjects ?? []).map((subject) => [subject.program, subject]));
  return html`
    <p class="sentence">${picked.length ? `${plural(picked.length, "program")} of ${programs.length} compared.` : `Choose among ${plural(programs.length, "program")}.`}</p>
    ${card("Curves", lines({
      names: picked, views: status.programs, answer: pages.lines, choice, words: choices(status), error: errors.lines, charts, on, of,
      more: html`<label><input type="checkbox" .checked=${choice.mean} @change=${(event) => on.choose({ mean: event.target.checked })}> mean of ${settings.has(choice.by) ? "each group" : "seeds"}</label>
        <label>Group by <select @change=${({ target: { value: by } }) => on.choose({ by, ...(by && { mean: true, pick: picked.length ? picked : [...settings.get(by).keys()].sort() }) })}>
          <option value="">game</option>${[...settings.keys()].map((key) => html`<option value=${key} ?selected=${key === choice.by}>${key}</option>`)}</select></label>`,
    }), "wide")}
    ${card("Programs", html`
      <div class="tools">
        <label>Search <input type="search" .value=${choice.q} @input=${(event) => on.choose({ q: event.target.value })}></label>
        <label>Show <select @change=${(event) => on.choose({ only: event.target.value })}>${
          Object.entries(FILTERS).map(([key, [word]]) => html`<option value=${key} ?selected=${key === choice.only}>${word}</option>`)}</select></label>
        <button ?disabled=${!number} @click=${() => on.choose({ pick: [...new Set([...picked, ...groups.flatMap(([, views]) => views.map(({ name }) => name))])] })}>Choose these ${number}</button>
        <button ?disabled=${!picked.length} @click=${() => on.choose({ pick: [] })}>Choose none</button>
      </div>
      <div class="scrolls" tabindex="0" role="region" aria-label="programs to choose from"><table class="compare stack">
        <thead><tr><th scope="col"><span class="hidden">Chosen</span></th>${heads(choice, on)}<th scope="col">State</th><th scope="col">Over time</th></tr></thead>
        ${repeat(groups, ([game]) => game, (group) => groupRows(group, picked, subjects, open, choice, on))}
      </table></div>
      ${groups.length ? nothing : html`<p>No program fits.</p>`}`, "wide")}`;
}

const heads = (choice, on) => Object.entries(COLUMNS).map(([key, word]) => {
  const [down, up] = [choice.sort === key, choice.sort === `-${key}`];
  return html`<th scope="col" class=${key === "name" ? "" : "number"} aria-sort=${down === up ? "none" : (key === "name") === down ? "ascending" : "descending"}><button class="plain"
    @click=${() => on.choose({ sort: down ? `-${key}` : key })}>${word}<span aria-hidden="true">${down ? " ▾" : up ? " ▴" : ""}</span></button></th>`;
});

function groupRows([game, views], picked, subjects, open, choice, on) {
  const names = views.map(({ name }) => name);
  const all = names.every((name) => picked.includes(name));
  const single = views.length === 1;
  const shown = single || open.has(game) || choice.q;
  return html`<tbody>
    ${single ? nothing : html`<tr class="group"><td>${box(`all of ${game}`, all, !all && names.some((name) => picked.includes(name)), () =>
      on.choose({ pick: all ? picked.filter((name) => !names.includes(name)) : [...new Set([...picked, ...names])] }))}</td>
      <th scope="rowgroup"><button class="plain name" aria-label=${game} aria-expanded=${shown ? "true" : "false"} @click=${() => on.toggle(game)}><span class="arrow" aria-hidden="true">${shown ? "▾" : "▸"}</span> ${middle(game)}</button></th>
      ${cells(together(views))}<td class="muted">${inStates(views)}</td>
      <td>${spark(meanPath(views, subjects), "")}</td></tr>`}
    ${shown ? repeat(views, ({ name }) => name, (view) => html`<tr><td>${box(view.name, picked.includes(view.name), false, () =>
      on.choose({ pick: picked.includes(view.name) ? picked.filter((name) => name !== view.name) : [...picked, view.name] }))}</td>
      <th scope="row" class=${single ? "" : "inner"}>${programLink(choice, view.name)}</th>
      ${cells(together([view]))}<td>${state(stateOf(view))}</td><td>${spark(sparkOf(subjects.get(view.name)), "")}</td></tr>`) : nothing}
  </tbody>`;
}

const box = (name, checked, some, change) => html`<label class="pick"><input type="checkbox" aria-label="Choose ${name}" .checked=${checked} .indeterminate=${some} @change=${change}></label>`;

const cells = ({ n, mean, spread, least, most, best, rate, steps }) => html`
  <td class="number" data-label="return">${figures(mean)}</td>
  <td class="number" data-label="spread">${n > 1 ? html`± ${figures(spread)} <span class="muted">${figures(least)} to ${figures(most)}</span>` : UNKNOWN}</td>
  <td class="number" data-label="best">${figures(best)}</td><td class="number" data-label="steps/s">${figures(rate)}</td>
  <td class="number" data-label="steps">${known(steps) ? count(steps) : UNKNOWN}</td>`;
