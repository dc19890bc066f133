// Trained: one row per program, broken ones first; many healthy ones are collapsed by game.

import { meanSparkline, sparkline, usual } from "../shape/curves.js";
import { inStates, sortedPrograms, stateCounts, stateOf, together, trainings } from "../shape/status.js";
import { ago, count, figures, known, percent, plural, span, UNKNOWN } from "../text.js";
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { middle, programLink } from "./program.js";
import { prose, shape, state } from "./shapes.js";

const MOST_GROUPS = 12;
const ALL = ""; // in place of a game's name: all games are shown
const WIDTH = 96;
const HEIGHT = 22;

/** `subjects` are curves by program; `open` the games whose rows are shown; `on` has `toggle(game)`. */
export function trained({ status, subjects, open, choice, on }) {
  if (!status) return html`<p class="muted">Loading …</p>`;
  const { programs } = status;
  if (!programs.length) return html`<p>No program is configured. Add one to <code>extralife.toml</code>, then <code>extralifectl update</code>.</p>`;
  const [works, services] = [trainings(programs), programs.filter(({ service }) => service)];
  const { first, groups, single } = sortedPrograms(works);
  const row = (view) => programRow(view, subjects.get(view.name), choice);
  const shown = open.has(ALL) ? groups : groups.slice(0, MOST_GROUPS);
  const rest = single ? groups.flatMap(([, views]) => views) : [];
  return html`
    <p class="state-counts">${stateCounts(works).map(([word, number]) => html`<span>${count(number)} ${word}</span>`)}</p>
    <table class="programs">
      <thead>
        <tr><th scope="col">Program</th><th scope="col">State</th><th scope="col">Return</th>
          <th scope="col" class="number">Steps/s</th><th scope="col" class="number">Steps</th>
          <th scope="col" class="number">Left</th><th scope="col" class="number">Checkpoint</th></tr>
      </thead>
      <tbody>
        ${repeat([...first, ...rest], ({ name }) => name, row)}
      </tbody>
      ${single ? nothing : repeat(shown, ([game]) => game, (group) => groupRows(group, open, row, subjects, on))}
    </table>
    ${shown.length < groups.length && !single ? html`<p><button @click=${() => on.toggle(ALL)}>${plural(groups.length - shown.length, "more game")}</button></p>` : nothing}
    ${services.length ? html`<h3>Services</h3><ul>${services.map((view) => html`<li>${programLink(choice, view.name)} ${state(stateOf(view))}
      <span class="muted">${view.phase === "RUNNING" ? `up ${span(view.uptime_s)}` : prose(reason(view, stateOf(view)))}</span></li>`)}</ul>` : nothing}`;
}

function groupRows([game, views], open, row, subjects, on) {
  const shown = open.has(game);
  const { n, mean, spread: off, rate, steps } = together(views);
  return html`<tbody>
    <tr class="group">
      <th scope="rowgroup"><button class="plain name" aria-label=${game} aria-expanded=${shown ? "true" : "false"} @click=${() => on.toggle(game)}>
        <span class="arrow" aria-hidden="true">${shown ? "▾" : "▸"}</span> ${middle(game)}</button></th>
      <td class="what">${inStates(views)}</td>
      <td class="return" data-unit=${known(mean) ? " " : ""}>${spark(meanPath(views, subjects), html`${figures(mean)}${n > 1 ? html`<span class="muted"> ± ${figures(off)}</span>` : nothing}`)}</td>
      <td class="number rate" data-unit=${known(rate) ? "/s" : ""}>${figures(rate)}</td>
      <td class="number steps" data-unit=${known(steps) ? "steps" : ""}>${count(steps)}</td>
      <td class="left"></td><td class="saved"></td>
    </tr>
    ${shown ? repeat(views, ({ name }) => name, row) : nothing}
  </tbody>`;
}

const means = new WeakMap(); // by the first program's curve: one answer's curves do not change

export function meanPath(views, subjects) {
  const found = views.map(({ name }) => subjects.get(name)).filter((subject) => subject?.series.mean_return);
  if (!found.length) return "";
  if (!means.has(found[0])) means.set(found[0], meanSparkline(found, "mean_return", WIDTH, HEIGHT));
  return means.get(found[0]);
}

/** A small curve and the value beside it. The curve's place is kept before it is known, so that nothing moves. */
export const spark = (line, value) => html`<span class="spark"><svg class="sparkline" width=${WIDTH} height=${HEIGHT} viewBox="0 0 ${WIDTH} ${HEIGHT}"
  preserveAspectRatio="none" aria-hidden="true">${line ? svg`<path d=${line}/>` : nothing}</svg><span>${value}</span></span>`;

export const sparkOf = (subject) => (subject?.series.mean_return ? sparkline(subject, "mean_return", WIDTH, HEIGHT) : "");

function programRow(view, subject, choice) {
  const look = stateOf(view);
  const why = reason(view, look);
  return html`<tr>
    <th scope="row">${programLink(choice, view.name)}</th>
    <td class="what">${state(look)}</td>
    <td class="return" data-unit=${known(view.mean_return) ? " " : ""}>${spark(sparkOf(subject), returns(view))}</td>
    <td class="number rate" data-unit=${known(view.steps_per_s) ? "/s" : ""}>${rate(view, usual(subject))}</td>
    <td class="number steps" data-unit=${known(view.steps) ? "steps" : ""}>${progress(view)}</td>
    <td class="number left" data-unit=${known(view.eta_s) ? "left" : ""}>${span(view.eta_s)}</td>
    <td class="number saved" data-unit=${known(view.ckpt_age_s) ? "saved" : ""}>${known(view.ckpt_age_s) ? ago(view.ckpt_age_s) : UNKNOWN}</td>
  </tr>
  ${why ? html`<tr class="why"><td colspan="7">${prose(why)}</td></tr>` : nothing}`;
}

/** The newest return; of a program that is done also its best and its tests'. */
function returns({ phase, mean_return: last, best_return: best, test_return: test }) {
  const more = phase !== "DONE" ? [] : [known(best) && `best ${figures(best)}`, known(test) && `test ${figures(test)}`].filter(Boolean);
  return html`${figures(last)}${more.length ? html`<span class="muted"> ${more.join(", ")}</span>` : nothing}`;
}

/** The reason for a state, if its word alone does not explain it. */
function reason(view, { tone }) {
  const why = tone === "quiet" && view.phase === "RUNNING" ? "" : view.why;
  return known(view.retry_in_s) ? `${why}. Next start in ${span(view.retry_in_s)}` : why;
}

/** Steps per second, with their share of the usual speed if it is clearly lower. */
function rate({ steps_per_s: now }, often) {
  if (!known(now)) return UNKNOWN;
  const share = often ? now / often : null;
  return html`${figures(now)}${share !== null && share < 0.8
    ? html` <span class="watch">${shape("triangle")} ${percent(share)}<span class="words"> of usual</span></span>` : nothing}`;
}

const progress = ({ steps, target, target_kind: kind }) =>
  html`${count(steps)}${kind === "env_steps" && target && known(steps) ? html`<span class="muted"> of ${count(target)}</span>` : nothing}`;

/** The programs whose rows are shown; their curves are requested. */
export function shownPrograms(status, open) {
  const { first, groups, single } = sortedPrograms(trainings(status.programs));
  return [...first, ...groups.filter(([game]) => single || open.has(game)).flatMap(([, views]) => views)];
}
