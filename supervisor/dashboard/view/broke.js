// What broke: the timeline over the curves' own time, and incidents by cause.

import { moment } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { shape } from "./shapes.js";

/** `groups` of incidents, most frequent first; `on.incident(group)` opens the evidence. */
export function broke({ report, on }) {
  if (!report) return html`<p class="muted">Waits for news …</p>`;
  const groups = report.broke;
  return html`
    ${groups.length ? nothing : html`<p class="calm">${shape("check")} Nothing broke in this time.</p>`}
    <ul class="incidents">${groups.map((group) => html`<li>
      <button class="plain" @click=${() => on.incident(group)}>
        <span class="times">${group.count} ×</span> <strong>${group.what}</strong>
        <span class="muted">${group.programs.join(", ")}</span>
        <span class="when">last ${moment(group.newest_wall_s, report.until_wall_s)}</span>
        <span class="reason">${group.why}</span>
      </button></li>`)}</ul>`;
}

