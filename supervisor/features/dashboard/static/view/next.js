// Next: tasks for the operator, the expected end and cost at each level, and the measured stability of each level.

import { around, count, dollars, few, known, moment, span, UNKNOWN } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { prose, shape } from "./shapes.js";

/** `error`: why there is no newer report or level. The old ones stay below it. */
export function next({ report, level, cost, error, on }) {
  const trouble = error ? html`<p class="trouble">Report: ${error}</p>` : nothing;
  if (!report || !level) return error ? trouble : html`<p class="muted">Loading …</p>`;
  return html`${trouble}
    ${needs(report.needs)}
    ${finish(report)}
    ${level.said || level.levels.length > 1 ? html`<p class="muted">${level.said ? `The last decision: ${level.said}` : level.line}</p>` : nothing}
    ${pinned(level, on)}
    <table class="levels"><caption class="muted">What each level bears, and how many steps it would have kept in ${span(report.length_s)}: measured, never scaled. “At least” holds with 90 % confidence.</caption>
      <thead><tr><th scope="col">Level</th><th scope="col" class="number">Reboot at this level every</th>
        <th scope="col" class="number">Would have kept</th><th scope="col" class="number">All done in</th><th scope="col"><span class="hidden">Pin</span></th></tr></thead>
      <tbody>${level.levels.map((each) => rung(each, named(cost?.levels, each), named(report.levels, each), level.levels.length > 1 && on))}</tbody>
    </table>`;
}

const needs = (list) => (list.length
  ? html`<ul class="needs">${list.map((said) => html`<li>${shape("triangle")} ${prose(said)}</li>`)}</ul>`
  : html`<p class="calm">${shape("check")} Nothing needs you.</p>`);

function finish({ next: found, until_wall_s }) {
  if (!known(found.days)) return html`<p>When all is done is not known: ${found.why || "no rate was measured"}.</p>`;
  const cost = known(found.usd) ? `, for another ${dollars(found.usd)}` : "";
  const but = Object.entries(found.but ?? {});
  return html`<p>At level ${found.level} ${but.length ? `all but ${few(but.map(([name]) => name))} are` : "all is"} done <strong>${moment(until_wall_s + found.days * 86400, until_wall_s)}</strong>,
    in ${span(found.days * 86400)}${around(found)}${cost}${but.map(([name, why]) => `; ${name}${why.startsWith("it") ? ":" : ""} ${why}`)}.</p>`;
}

const pinned = ({ pin }, on) => (pin
  ? html`<p>${pin.by ? `${pin.by} pinned` : "Pinned"} ${pin.level}${known(pin.left_s) ? `, ${span(pin.left_s)} left` : ""}.
      <button @click=${() => on.unpin(pin.level)}>Unpin</button></p>`
  : nothing);

const named = (list, { name }) => list?.find((each) => each.name === name);

/** A level: its stability, the steps that it would have kept in the window (measured, never guessed), the expected end. */
function rung(each, bill, would, on) { // no `on`: there is no other level to choose
  const load = known(each.slots) ? `${each.slots} × ${each.num_envs}` : "";
  const speed = known(each.steps_per_min) ? `${count(each.steps_per_min)} steps/min` : "";
  const trial = !each.in_force && known(each.next_trial_s) && `next trial ${each.next_trial_s > 0 ? `in ${span(each.next_trial_s)}` : "now"}`;
  return html`<tr class=${each.in_force ? "here" : ""}>
    <th scope="row">${each.in_force ? html`<span class="now">${shape("disc")}</span> ` : nothing}${each.name}
      ${[load, speed].filter(Boolean).map((words) => html`<span class="reason">${words}</span>`)}
      ${each.veto ? html`<span class="reason">vetoed: ${each.veto}</span>` : nothing}
      ${trial ? html`<span class="reason">${trial}</span>` : nothing}</th>
    <td class="number" data-label="Reboot at this level every">${stability(each)}</td>
    <td class="number" data-label="Would have kept">${made(would)}</td>
    <td class="number" data-label="All done in">${bill && known(bill.days) ? span(bill.days * 86400) + around(bill) : UNKNOWN}${
      bill && known(bill.usd) ? html`<span class="eta">${dollars(bill.usd)}</span>` : nothing}</td>
    <td>${on ? html`<button class="small" aria-label="Pin ${each.name}" @click=${() => on.pin(each)}>Pin</button>` : nothing}</td>
  </tr>`;
}

function made(would) {
  if (!would) return UNKNOWN;
  if (!known(would.kept_steps)) return html`<span class="muted">${would.why}</span>`;
  const least = known(would.kept_steps_least) ? `at least ${count(would.kept_steps_least)}` : "no bound";
  return html`${count(would.kept_steps)}<span class="eta">${least}</span>`;
}

/** The mean time between reboots, and its lower bound with 90 % confidence. */
function stability({ up_s, reboots, mtbf_s, mtbf_bound_s, in_force: here }) {
  if (!up_s) return html`<span class="muted">${here ? "no reboot yet" : "never measured"}</span>`;
  const bound = known(mtbf_bound_s) ? html`<span class="eta">at least ${span(mtbf_bound_s)}</span>` : nothing;
  return html`${reboots ? span(mtbf_s) : `none in ${span(up_s)}`}${bound}`;
}
