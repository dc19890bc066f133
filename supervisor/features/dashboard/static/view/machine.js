// The box: memory, disk, pressure and GPUs as they were recorded, with levels and reboots behind them.

import { frame, linesOf } from "../shape/curves.js";
import { bytes, figures, known, moment, percent, plural, span } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { lineOf } from "./chart.js";
import { card, loading } from "./program.js";
import { legend, plot, zoomed } from "./well.js";

export const HOST = { cpu_busy: "CPU use", available_bytes: "Free memory", swap_free_bytes: "Free swap", disk_free_bytes: "Free disk", memory_full: "All wait for memory", io_full: "All wait for the disk" };
export const GPUS = { utilisation: "GPU use", used_bytes: "GPU memory used", temperature_c: "GPU temperature", power_w: "GPU power" };
const MOST = { cpu_busy: 103, utilisation: 103 }; // of an axis: a line at 100 is whole
const UNITS = { bytes: "B", "%": " %", "°C": " °C", W: " W" };

export function machinePage({ status, pages, errors, choice, charts, on }) {
  if (!status) return html`<p class="sentence">&nbsp;</p>`;
  const { daemon, wall_s } = status;
  const all = ["host", "gpus", "timeline"].every((name) => pages[name] || errors[name]); // together: a later part would move the others
  if (!all) return html`<p class="sentence">${sentence(daemon)}</p>${loading("")}`;
  const shown = [...cells("host", HOST, pages.host, charts), ...cells("gpus", GPUS, pages.gpus, charts)];
  charts.keep(shown.map(({ key }) => key));
  return html`
    <p class="sentence">${sentence(daemon)}</p>
    ${card("Measured", html`
      <div class="tools">${zoomed(choice, on)}</div>
      ${errors.host || errors.gpus ? html`<p class="trouble">${errors.host || errors.gpus}</p>` : nothing}
      ${legend(["trial", "level", "reboot"])}
      ${pages.host && !shown.length ? html`<p>Nothing was recorded in this time.</p>` : nothing}
      <div class="charts">${repeat(shown, ({ key }) => key, chart)}</div>
      ${pages.gpus && !pages.gpus.subjects.length ? html`<p class="muted">${daemon.gpu?.error ? `The GPUs cannot be read: ${daemon.gpu.error}.` : "No GPU was recorded in this time."}</p>` : nothing}`, "wide")}
    ${daemon.gpu?.gpus?.length ? card("GPUs now", gpus(daemon.gpu.gpus)) : nothing}
    ${pages.gpus?.subjects.length ? card("Reduced clocks", throttling(pages.gpus)) : nothing}
    ${pages.timeline ? card("Reboots and absences", absences(pages.timeline, wall_s)) : nothing}`;
}

function sentence({ box, boot_up_s, reboots_total, mtbf_s, last_reboot: last, level }) {
  const parts = [
    known(boot_up_s) && `up ${span(boot_up_s)}`,
    level?.name && `level ${level.name}`,
    reboots_total ? `${plural(reboots_total, "reboot")} of the box${known(mtbf_s) ? `, one every ${span(mtbf_s)}` : ""}` : "no reboot yet",
    last && `the last ${span(last.ago_s)} ago (${last.cause})`,
  ].filter(Boolean);
  return `${box?.hostname ?? "This box"}: ${parts.join(", ")}.`;
}

/** One chart per figure that was recorded: {key, word, model}. GPUs are its lines. */
function cells(sheet, words, answer, charts) {
  if (!answer) return [];
  return Object.entries(words).flatMap(([name, word]) => {
    const subjects = answer.subjects.filter(({ series, worker_phase: phase }) => series[name]?.mean.some((value) => known(value) && (value || name !== "swap_free_bytes")) && !(Array.isArray(phase) ? phase[0] : phase));
    if (!subjects.length) return [];
    const groups = subjects.map((subject, ink) => ({ name: subject.gpu ? short(subject.gpu) : word, ink, subjects: [whole(subject)] }));
    const unit = UNITS[answer.units[name]] ?? "";
    const amount = (value) => (unit === "B" ? bytes(value) : `${figures(value)}${known(value) ? unit : ""}`);
    const model = charts.model(`${sheet} ${name}`, [answer], ({ slots }) => ({
      amount, ...linesOf(groups, name, "wall", frame(answer, slots, null)), axis: "wall", programs: [], figure: name, zero: name !== "temperature_c", most: MOST[name],
    }));
    return [{ key: `${sheet} ${name}`, word, model }];
  });
}

/** A subject without attempts: everything is kept. */
const whole = (subject) => ({ ...subject, kept: subject.at_s.map(() => true), env_steps: [], worker_phase: [], level: subject.level ?? [] });
const short = (uuid) => (uuid.length > 12 ? uuid.slice(0, 12) : uuid);

const chart = ({ key, word, model }) => html`<figure class="chart">
  <figcaption><strong>${word}</strong> <span class="value">${[...model.last.values()].map(model.amount).join(", ")}</span><span class="readout" aria-hidden="true"></span></figcaption>
  ${plot(key, word)}
  ${model.last.size > 1 ? html`<ul class="values">${[...model.last].map(([name, value], ink) => html`<li><span class="ink ${lineOf(ink).stroke}" aria-hidden="true"></span>${name}
    <output data-line=${model.names.indexOf(name)}></output><strong>${model.amount(value)}</strong></li>`)}</ul>` : nothing}
</figure>`;

const gpus = (list) => html`<table><tbody>${list.map((gpu) => html`<tr><th scope="row">${gpu.name ?? `GPU ${gpu.index}`}</th>
  <td>${[known(gpu.temperature_c) && `${figures(gpu.temperature_c)} °C`, known(gpu.utilisation) && `${figures(gpu.utilisation)} % busy`,
    known(gpu.power_w) && `${figures(gpu.power_w)} W`, gpu.lost && `lost: ${gpu.lost}`, gpu.reasons?.length && `clocks reduced: ${gpu.reasons.join(", ")}`].filter(Boolean).join(", ")}</td></tr>`)}</tbody></table>`;

/** For each GPU and reason, the share of the recorded time with reduced clocks. */
function throttling({ subjects }) {
  const found = subjects.filter(({ reasons, worker_phase: phase }) => reasons && !(Array.isArray(phase) ? phase[0] : phase)).flatMap(({ gpu, reasons }) => {
    const shares = new Map();
    for (const words of reasons) for (const word of (words ?? "").split(" ").filter(Boolean)) shares.set(word, (shares.get(word) ?? 0) + 1);
    return [...shares].map(([word, number]) => [short(gpu), word, number / reasons.length]);
  });
  return found.length ? html`<table><thead><tr><th scope="col">GPU</th><th scope="col">Reason</th><th scope="col" class="number">Share of the time</th></tr></thead>
    <tbody>${found.map(([gpu, word, share]) => html`<tr><th scope="row">${gpu}</th><td>${word}</td><td class="number">${percent(share)}</td></tr>`)}</tbody></table>`
    : html`<p>No GPU had reduced clocks in this time.</p>`;
}

function absences({ box, until_s, until_wall_s }, now_s) {
  if (!box.length) return html`<p>None in this time.</p>`;
  return html`<table class="stack"><thead><tr><th scope="col">When</th><th scope="col">What</th><th scope="col" class="number">For</th><th scope="col">Why</th></tr></thead>
    <tbody>${[...box].reverse().slice(0, 20).map(({ from_s, to_s, kind, why }) => html`<tr><th scope="row" class="when">${moment(from_s + until_wall_s - until_s, now_s)}</th><td>${kind.replace(" ", "\u00a0")}</td>
      <td class="number">${span(to_s - from_s)}</td><td>${why}</td></tr>`)}</tbody></table>`;
}
