// Cost: the price, its shares by purpose, and the steps kept and lost by day.

import { count, dollars, exact, known, percent, plural, UNKNOWN } from "../text.js";
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";

const hours = (value) => exact(known(value) ? value * 3600 : value);
const rank = ({ name, share }) => (name === "useful" ? Infinity : share);
const MOST_DAYS = 14;

/** `error`: why there is no newer bill. The old one stays below it. */
export function cost({ cost: bill, days, error }) {
  const trouble = error ? html`<p class="trouble">Cost: ${error}</p>` : nothing;
  if (!bill) return error ? trouble : html`<p class="muted">Loading …</p>`;
  const unknown = bill.frames_unknown.length;
  const causes = bill.causes.filter(({ share }) => share > 0).sort((one, other) => rank(other) - rank(one));
  return html`${trouble}
    <p class="figure"><strong>${known(bill.usd) ? dollars(bill.usd) : hours(bill.wall_hours)}</strong>
      <span class="muted">${known(bill.usd) ? `for ${hours(bill.wall_hours)} of the box` : "of the box"}</span></p>
    ${known(bill.usd_per_million_frames) ? html`<p>${unknown ? "At most " : nothing}<strong>${dollars(bill.usd_per_million_frames)}</strong> a million kept frames${unknown ? html`<span class="muted">: those of ${plural(unknown, "program")} are not known</span>` : nothing}</p>` : nothing}
    ${bill.says ? html`<p class="muted">${bill.says}</p>` : nothing}
    ${shares(causes)}
    <table><thead><tr><th scope="col">Spent on</th><th scope="col" class="number">Share</th>
      <th scope="col" class="number">Slot time</th><th scope="col" class="number">Paid</th></tr></thead>
      <tbody>${causes.map((each) => html`<tr><th scope="row"><span class="key ${each.name === "useful" ? "useful" : ""}" aria-hidden="true"></span>${each.name}</th>
        <td class="number">${percent(each.share)}</td><td class="number">${hours(each.hours)}</td><td class="number">${dollars(each.usd)}</td></tr>`)}</tbody></table>
    ${days?.days.length ? byDay(days.days.slice(-MOST_DAYS)) : nothing}`;
}

/** One bar of all shares; the table below shows the same. */
const shares = (causes) => html`<svg class="shares" width="100%" height="12" aria-hidden="true">${causes.map(({ name, share }, place) =>
  svg`<rect class=${name === "useful" ? "useful" : "lost"} x="${causes.slice(0, place).reduce((sum, each) => sum + each.share, 0) * 100}%" width="${Math.max(0, share * 100 - 0.3)}%" height="12"/>`)}</svg>`;

/** Steps that were kept and lost, one row per day, the newest first. */
function byDay(days) {
  const most = Math.max(...days.map(({ computed_steps }) => computed_steps), 1);
  return html`<table class="days"><caption>Steps by day</caption>
    <thead><tr><th scope="col">Day</th><th scope="col"><span class="hidden">Share of the best day</span></th><th scope="col" class="number">Kept</th>
      <th scope="col" class="number">Lost</th><th scope="col" class="number">Paid</th></tr></thead>
    <tbody>${[...days].reverse().map((day) => html`<tr><th scope="row">${day.date.slice(5)}</th>
      <td class="bar"><svg class="shares" width="100%" height="10" aria-hidden="true">
        ${svg`<rect class="useful" width="${(day.kept_steps / most) * 100}%" height="10"/>
          <rect class="lost" x="${(day.kept_steps / most) * 100}%" width="${(day.lost_steps / most) * 100}%" height="10"/>`}</svg></td>
      <td class="number">${count(day.kept_steps)}</td>
      <td class="number">${known(day.lost_steps) ? `${count(day.lost_steps)}${day.lost_unknown ? " +?" : ""}` : UNKNOWN}</td>
      <td class="number">${dollars(day.usd)}</td></tr>`)}</tbody></table>`;
}
