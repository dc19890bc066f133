// One program: its figures, the actions on it, and the end of its logs.

import { tail } from "../api.js";
import { stateOf } from "../shape/status.js";
import { ago, count, figures, known, percent, span, UNKNOWN } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { askBackup, askProgram } from "./actions.js";
import { open, refresh } from "./dialog.js";
import { state } from "./shapes.js";

const LOG_BYTES = 8_000;

/** `find()` is the program's newest view, undefined once it is gone. */
export function openProgram(name, find) {
  const logs = { stderr: null, stdout: null };
  for (const channel of Object.keys(logs)) {
    tail(name, channel, LOG_BYTES).then(({ data, error }) => {
      logs[channel] = error ?? data;
      refresh();
    });
  }
  open(name, () => {
    const view = find();
    return view ? details(view, logs) : html`<p>${name} is not configured any more.</p>`;
  });
}

function details(view, logs) {
  const up = ["STARTING", "RUNNING", "STOPPING"].includes(view.phase);
  const down = ["STOPPED", "DONE", "EXITED", "FATAL"].includes(view.phase); // all others run, or start again by themselves
  return html`
    <p>${state(stateOf(view))} <span>${view.why}</span></p>
    <p class="buttons">
      ${up ? html`<button @click=${() => askProgram("restart", view.name)}>Restart …</button>`
      : html`<button @click=${() => askProgram("start", view.name)}>Start …</button>`}
      ${down ? nothing : html`<button @click=${() => askProgram("stop", view.name)}>Stop …</button>`}
      <button @click=${() => askBackup(view.name)}>Back up …</button>
    </p>
    <dl class="figures">${rows(view).map(([title, value]) => html`<div><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>
    ${Object.entries(logs).map(([channel, text]) => log(channel, text))}`;
}

const rows = (view) => [
  ["attempt", count(view.attempt)],
  ["up", span(view.uptime_s)],
  ["restarts", count(view.restarts)],
  ["rollbacks", count(view.rollbacks)],
  ["steps", known(view.target) && view.target_kind === "env_steps" ? `${count(view.steps)} of ${count(view.target)}` : count(view.steps)],
  ["steps/s", figures(view.steps_per_s)],
  ["mean return", figures(view.mean_return)],
  ["best mean return", figures(view.best_return)],
  ["test return", figures(view.test_return)],
  ["loss", figures(view.loss)],
  ["checkpoint", known(view.ckpt_age_s) ? `step ${count(view.ckpt_step)}, ${ago(view.ckpt_age_s)}` : UNKNOWN],
  ["left", span(view.eta_s)],
  ["memory", known(view.memory_bytes ?? view.rss_bytes) ? `${count(view.memory_bytes ?? view.rss_bytes)}B` : UNKNOWN],
  ["load", known(view.num_envs) ? `${count(view.num_envs)} environments, batch ${figures(view.batch_size)}` : UNKNOWN],
  ["time goes to", shares(view.time_shares)],
  ...Object.entries(view.figures ?? {}).map(([name, value]) => [name, figures(value)]),
];

const shares = (found) => (found
  ? Object.entries(found).filter(([, share]) => share >= 0.01).map(([name, share]) => `${name} ${percent(share)}`).join(", ")
  : UNKNOWN);

function log(channel, text) {
  if (text === "") return nothing;
  return html`<h3>${channel}</h3><pre tabindex="0" aria-label="the end of ${channel}">${text ?? "…"}</pre>`;
}
