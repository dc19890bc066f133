// The page of one program: what it does now, its curves, incidents, figures, attempts, checkpoints, tests, settings and logs.

import { link } from "../shape/route.js";
import { programSentence } from "../shape/sentence.js";
import { groupOf, stateOf } from "../shape/status.js";
import { ago, bytes, count, exact, figures, known, moment, percent, plural, span, UNKNOWN } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { askBackup, askProgram } from "./actions.js";
import { causesOf } from "./broke.js";
import { lines } from "./lines.js";
import { prose, state } from "./shapes.js";
import { choices } from "./well.js";

export const KINDS = "SpawnIntended,Resumed,FirstStepShown,Exited,RolledBack,BatchLowered,ProgramConfigured";
export const SAVED = "Checkpointed,CheckpointSeen";
const MOST_ATTEMPTS = 12;
const MOST_CHECKPOINTS = 10;
const ENDS = 12; // characters of a name that are always shown

/** The other seeds of the same game, and itself. */
export const seedsOf = (status, name) => {
  const own = status.programs.find((view) => view.name === name);
  return own ? status.programs.filter((view) => groupOf(view) === groupOf(own)).map((view) => view.name) : [name];
};

export function programPage({ status, pages, errors, choice, charts, logs, on }) {
  const { name } = choice;
  if (!status) return html`<p class="sentence">&nbsp;</p>`;
  const view = status.programs.find((each) => each.name === name);
  if (!view) return html`<h2>${name}</h2><p>No program of this name is configured. <a href="#/">All programs</a></p>`;
  const now_s = status.wall_s;
  const seeds = seedsOf(status, name);
  return html`
    <div class="head"><h2>${name}</h2> ${state(stateOf(view))} ${buttons(view)}</div>
    <p class="sentence long">${prose(programSentence(view))}</p>
    ${view.service ? nothing : card("Curves", lines({
      names: choice.seeds ? seeds : [name], views: status.programs, answer: pages.lines, choice, words: choices(status), error: errors.lines, charts, on,
      more: seeds.length > 1 ? html`<label><input type="checkbox" .checked=${choice.seeds} @change=${(event) => on.choose({ seeds: event.target.checked })}> all ${seeds.length} seeds of ${groupOf(view)}</label>
        ${choice.seeds ? html`<label><input type="checkbox" .checked=${choice.mean} @change=${(event) => on.choose({ mean: event.target.checked })}> their mean</label>` : nothing}` : nothing,
    }), "wide")}
    ${card("What broke", pages.incidents ? html`${errors.incidents ? loading(errors.incidents) : nothing}${pages.incidents.causes.length ? nothing : html`<p>Nothing broke in this time.</p>`}
      <ul class="incidents">${causesOf(pages.incidents.causes, pages.incidents.until_wall_s, on)}</ul>` : loading(errors.incidents))}
    ${card("Figures", html`<dl class="figures">${rows(view).filter(([, value]) => !view.service || value !== UNKNOWN).map(([title, value]) => html`<div><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>${tests(pages.results, name)}`)}
    ${card("Attempts, and what changed before each", pages.attempts ? attempts(pages.attempts.facts, pages.level, now_s) : loading(errors.attempts), "wide")}
    ${view.service ? nothing : card("Checkpoints", pages.saved ? checkpoints(view, pages.saved.facts, pages.backups, now_s) : loading(errors.saved))}
    ${card("Settings", pages.config ? settings(pages.config.settings, name) : loading(errors.config))}
    ${card("Logs", logs.show(), "wide")}`;
}

export const card = (title, body, more = "") => html`<section class="card ${more}" aria-label=${title}><h2>${title}</h2><div class="body">${body}</div></section>`;
export const loading = (error) => (error ? html`<p class="trouble">${error}</p>` : html`<p class="muted">Loading …</p>`);

function buttons(view) {
  const up = ["STARTING", "RUNNING", "STOPPING"].includes(view.phase);
  const down = ["STOPPED", "DONE", "EXITED", "FATAL"].includes(view.phase); // all others run, or start again by themselves
  return html`<span class="buttons">
    ${up ? html`<button @click=${() => askProgram("restart", view.name)}>Restart …</button>`
    : html`<button @click=${() => askProgram("start", view.name)}>Start …</button>`}
    ${down ? nothing : html`<button @click=${() => askProgram("stop", view.name)}>Stop …</button>`}
    <button @click=${() => askBackup(view.name)}>Back up …</button>
  </span>`;
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
  ["memory", bytes(view.memory_bytes ?? view.rss_bytes)],
  ...(view.health ? [["answers", { true: "yes", false: `no: ${view.health.error}` }[view.health.ok] ?? UNKNOWN]] : []),
  ["load", known(view.num_envs) ? `${count(view.num_envs)} environments, batch ${figures(view.batch_size)}` : UNKNOWN],
  ["time goes to", shares(view.time_shares)],
  ...Object.entries(view.figures ?? {}).map(([name, value]) => [name, figures(value)]),
];

const shares = (found) => (found
  ? Object.entries(found).filter(([, share]) => share >= 0.01).map(([name, share]) => `${name} ${percent(share)}`).join(", ")
  : UNKNOWN);

/** The newest whole test of this program. */
function tests(results, name) {
  const run = results?.runs.find(({ program }) => program === name);
  if (!run) return nothing;
  const human = known(run.hns) ? `, human-normalised ${figures(run.hns)}` : "";
  return html`<p><strong>Newest test:</strong> return ${figures(run.return)} over ${plural(run.test_games, "game")} at step ${count(run.env_steps)}${human}.</p>`;
}

/** One row an attempt, the newest first: what was different from the attempt before, where it began, and how it ended. */
function attempts(facts, level, now_s) {
  const found = [];
  let changes = [];
  for (const { kind, why, wall_s, fields } of facts) {
    const last = found.at(-1);
    if (kind === "SpawnIntended") {
      if (last && last.level !== fields.level) changes.push(`level ${load(level, last.level)} → ${load(level, fields.level)}`);
      else if (last && last.digest !== fields.digest && !changes.length) changes.push("its settings");
      found.push({ ...fields, wall_s, why, changes, begin: UNKNOWN, end: "" });
      changes = [];
    } else if (kind === "ProgramConfigured" && !fields.moved) changes.push(fields.changed?.join(", ") || why.replace(/^changed /, ""));
    else if (kind === "RolledBack" || kind === "BatchLowered") changes.push(why);
    else if (last && kind === "Exited") last.end = why;
    else if (last && "step" in fields) last.begin = `${count(fields.step)}${fields.lost_steps ? `, ${count(fields.lost_steps)} lost` : ""}`;
  }
  if (!found.length) return html`<p>No attempt was started yet.</p>`;
  return html`${changes.length ? html`<p><strong>Since then:</strong> ${prose(changes.join("; "))}.</p>` : nothing}<table class="stack">
    <thead><tr><th scope="col">Attempt</th><th scope="col">Started</th><th scope="col">Changed</th><th scope="col" class="number">From step</th><th scope="col">Ended</th></tr></thead>
    <tbody>${found.slice(-MOST_ATTEMPTS).reverse().map((each) => html`<tr><th scope="row">${count(each.attempt)}</th>
      <td data-label="started">${moment(each.wall_s, now_s)}</td><td data-label="changed">${each.changes.join("; ") || "nothing"}</td>
      <td class="number" data-label="from step">${each.begin}</td><td data-label="ended">${each.end || "runs"}</td></tr>`)}</tbody></table>`;
}

function load(page, name) {
  const found = page?.levels.find((each) => each.name === name);
  return found && known(found.slots) ? `${name} (${found.slots} × ${found.num_envs})` : name;
}

function checkpoints(view, facts, backups, now_s) {
  const kept = (backups?.backups ?? []).filter(({ programs }) => programs?.some(({ name }) => name === view.name));
  return html`
    <p>${known(view.ckpt_age_s) ? `The newest is of step ${count(view.ckpt_step)}, ${ago(view.ckpt_age_s)}${view.phase === "RUNNING" ? `; one is due every ${span(view.interval_s)}` : ""}. At most one in ten minutes is recorded here.` : facts.length ? "" : "None is known."}
      ${view.ckpt_note ? html`<span class="trouble">${view.ckpt_note}</span>` : nothing}</p>
    ${view.ckpt_path ? html`<p class="muted">${view.ckpt_path}</p>` : nothing}
    ${facts.length ? html`<table><thead><tr><th scope="col">Recorded</th><th scope="col" class="number">Step</th><th scope="col" class="number">Written in</th><th scope="col" class="number">Training paused</th></tr></thead>
      <tbody>${facts.slice(-MOST_CHECKPOINTS).reverse().map(({ wall_s, fields }) => html`<tr><th scope="row" class="when">${moment(wall_s, now_s)}</th>
        <td class="number">${count(fields.step)}</td><td class="number">${exact(fields.write_s)}</td><td class="number">${exact(fields.stall_s)}</td></tr>`)}</tbody></table>` : nothing}
    ${kept.length ? html`<p>In ${plural(kept.length, "backup")}: ${kept.slice(0, 3).map(({ name }) => name).join(", ")}.</p>` : nothing}`;
}

const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** Settings that are not the default, then all of them. */
function settings(list, name) {
  const prefixes = [name, JSON.stringify(name)].map((word) => `program.${word}.`); // a name with dots is in quotes
  const own = list.flatMap((row) => prefixes.filter((prefix) => row.key.startsWith(prefix)).map((prefix) => ({ ...row, key: row.key.slice(prefix.length) })));
  const table = (rows_) => html`<table class="settings"><tbody>${rows_.map(({ key, value, origin, file }) => html`<tr><th scope="row">${key}</th>
    <td>${said(value)}${file === undefined ? nothing : html`<span class="reason watch">the file says ${said(file)}: extralifectl update ${name}</span>`}</td><td class="muted">${origin.split("/").at(-1)}</td></tr>`)}</tbody></table>`;
  return html`${table(own.filter(({ origin, file }) => origin !== "default" || file !== undefined))}
    <details><summary>All ${own.length} settings</summary>${table(own)}</details>`;
}

/** A name with an ellipsis in its middle where it is too long: the ends of names differ. */
export const middle = (name) => html`<span class="cut">${name.slice(0, -ENDS)}</span><span>${name.slice(-ENDS)}</span>`;
export const programLink = (choice, name) => html`<a class="name" title=${name} aria-label=${name} href=${link(choice, "program", name)}>${middle(name)}</a>`;
