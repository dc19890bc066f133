// The evidence of an incident: measurements, observations and decisions with their reasons, in the order of their records.

import { page } from "../api.js";
import { amountOf, clockSeconds, count, exact, known, moment, plural, span } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { open, refresh } from "./dialog.js";
import { prose } from "./shapes.js";

const CHARS = 6_000; // of each text
const MORE = 20;

/** Show the incidents of a cause, with the newest one open. A button requests the older ones. */
export function openCause({ what, count: number, error: words = "" }, since, now_s, program = "") {
  const found = {};
  const ask = (limit) => fetchInto(found, { since, limit, ...(program ? { program } : {}) }, (group) => group.what === what && (group.error ?? "") === words);
  ask(1);
  open(number > 1 ? `${what}, ${number} times` : what, () => html`
    ${contents(found, now_s)}
    ${found.incidents && found.incidents.length < Math.min(number, MORE)
      ? html`<p><button @click=${() => ask(MORE)}>Show ${number > MORE ? `the newest ${MORE}` : `all ${number}`}</button></p>` : nothing}`);
}

/** Show the meaning of a band of the timeline: the reason for a level or a change, or the incident that contains the band's fact. */
export function openBand({ kind, label, why, seq, from_s }, now_s) {
  const title = ["level", "trial"].includes(kind) ? `Level ${label}` : label[0].toUpperCase() + label.slice(1);
  if (["level", "trial", "settings"].includes(kind) || !seq) {
    open(title, () => html`<p>${moment(from_s, now_s)}: ${why}.</p>`);
    return;
  }
  const found = {};
  fetchInto(found, { seq, limit: 1 }, () => true);
  open(title, () => contents(found, now_s));
}

/** Put the incidents of the causes that `wanted` accepts into `found`, or the reason why they are not known. */
async function fetchInto(found, query, wanted) {
  const { data, error } = await page("incidents", { ...query, chars: CHARS });
  found.error = error;
  found.incidents = data?.causes.filter(wanted).flatMap(({ incidents }) => incidents) ?? [];
  refresh();
}

function contents({ incidents, error }, now_s) {
  if (error) return html`<p class="trouble">${error}</p>`;
  if (!incidents) return html`<p class="muted">Loading evidence …</p>`;
  if (!incidents.length) return html`<p>No incident is recorded here.</p>`;
  return incidents.map((each, place) => incident(each, place === 0, now_s));
}

function incident(each, shown, now_s) {
  const parts = [
    each.program ?? (each.programs.length ? each.programs.join(", ") : "the box"),
    known(each.attempt) && `attempt ${count(each.attempt)}`,
    each.level && `level ${each.level}`,
    known(each.outage_s) && `${span(each.outage_s)} without training`,
    each.lost_steps && `${count(each.lost_steps)} steps lost`,
    each.goes_on && "not over yet",
  ].filter(Boolean);
  return html`<details class="incident" ?open=${shown}>
    <summary><strong>${moment(each.wall_s, now_s)}</strong> ${parts.join(" · ")}</summary>
    <ol class="history">${each.story.map(row)}</ol>
    ${each.left_out ? html`<p class="muted">${plural(each.left_out, "more row")} in <code>extralifectl history</code>.</p>` : nothing}
  </details>`;
}

function row({ wall_s, word, program, why, decision, measured, evidence }) {
  const figure = Object.entries(measured).map(([key, value]) => `${key.replace(/_(s|bytes)$/, "").replaceAll("_", " ")} ${formatFigure(key, value)}`);
  return html`<li class=${decision ? "decision" : ""}>
    <p><time>${clockSeconds(wall_s)}</time> <strong>${decision ? "decided: " : ""}${word}</strong>${program ? html` <span class="muted">${program}</span>` : nothing}</p>
    <p>${prose(why)}</p>
    ${figure.length ? html`<p class="muted">${figure.join(" · ")}</p>` : nothing}
    ${evidence.map(({ title, text, cut }) => html`<h3>${title.replaceAll("_", " ")}${cut ? " (a part)" : ""}</h3>
      <pre tabindex="0" role="region" aria-label=${title}>${text}</pre>`)}
  </li>`;
}

const formatFigure = (key, value) => (typeof value !== "number" ? String(value) : key.endsWith("_s") ? exact(value) : amountOf(key)(value));
