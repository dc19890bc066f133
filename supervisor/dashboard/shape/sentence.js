// The sentence at the top of the page: programs that trained, steps kept, reboots, cost, and the expected end.

import { around, count, dollars, known, moment, percent, plural } from "../text.js";

/** The sentence for the page `report`. Unknown parts are left out. */
export function sentence(report) {
  const trained = report.programs.filter(({ trained_s }) => trained_s > 0).length;
  const kept = `${count(report.kept_steps)} steps kept`;
  const parts = [
    `${trained} of ${report.programs.length} trained`,
    known(report.useful_share) ? `${kept} (${percent(report.useful_share)} of the time)` : kept,
    report.reboots ? plural(report.reboots, "reboot") : "no reboot",
  ];
  if (known(report.usd)) parts.push(dollars(report.usd));
  if (known(report.next.days)) {
    parts.push(`done ${moment(report.until_wall_s + report.next.days * 86400, report.until_wall_s)}${around(report.next)}`);
  }
  return `Since ${moment(report.since_wall_s, report.until_wall_s)}: ${parts.join(", ")}.`;
}
