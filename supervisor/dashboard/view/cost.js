// Cost: what was paid, what for, and what was kept and lost by day.

import { dollars, figures, known, percent } from "../text.js";
import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";

const MOST_CAUSES = 8;

export function cost({ cost: bill }) {
  if (!bill) return html`<p class="muted">Waits for news …</p>`;
  const causes = bill.causes.filter(({ share }) => share > 0).slice(0, MOST_CAUSES);
  return html`
    <p class="figure"><strong>${known(bill.usd) ? dollars(bill.usd) : `${figures(bill.wall_hours)} h`}</strong>
      <span class="muted">${known(bill.usd) ? `for ${figures(bill.wall_hours)} h of the box` : "of the box"}</span></p>
    ${known(bill.usd_per_million_frames) ? html`<p><strong>${dollars(bill.usd_per_million_frames)}</strong> a million kept frames</p>` : nothing}
    ${bill.says ? html`<p class="muted">${bill.says}</p>` : nothing}
    ${shares(causes)}
    <table><thead><tr><th scope="col">Went to</th><th scope="col" class="number">Share</th>
      <th scope="col" class="number">Slot hours</th><th scope="col" class="number">Paid</th></tr></thead>
      <tbody>${causes.map((each) => html`<tr><th scope="row"><span class="key ${each.name === "useful" ? "useful" : ""}" aria-hidden="true"></span>${each.name}</th>
        <td class="number">${percent(each.share)}</td><td class="number">${figures(each.hours)}</td><td class="number">${dollars(each.usd)}</td></tr>`)}</tbody></table>`;
}

/** One bar of all shares; the table below says the same. */
function shares(causes) {
  let from = 0;
  return html`<svg class="shares" width="100%" height="12" aria-hidden="true">${causes.map(({ name, share }) => {
    const part = svg`<rect class=${name === "useful" ? "useful" : "lost"} x="${from * 100}%" width="${Math.max(0, share * 100 - 0.3)}%" height="12"/>`;
    from += share;
    return part;
  })}</svg>`;
}
