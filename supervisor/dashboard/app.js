// The page: its state, the schedule of requests for each part, and the panel that shows each part.

import { page } from "./api.js";
import { Live } from "./live.js";
import { bandsOf } from "./shape/bands.js";
import { AXES } from "./shape/curves.js";
import { applied } from "./shape/status.js";
import { sentence } from "./shape/sentence.js";
import { clockSeconds, known, span } from "./text.js";
import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import { askPin, askUnpin } from "./view/actions.js";
import { broke, Timeline } from "./view/broke.js";
import { cost } from "./view/cost.js";
import { refresh as refreshDialog } from "./view/dialog.js";
import { openBand, openCause } from "./view/incident.js";
import { next } from "./view/next.js";
import { openProgram } from "./view/program.js";
import { shownPrograms, trained } from "./view/trained.js";
import { Charts, choices, shownGames, well } from "./view/well.js";

const OLD_MS = 10_000; // status older than this turns the page grey
const SOON_MS = 1_500; // from a change of a program's state to the request for new reports
const WINDOWS = { "1h": [3600, "1 hour"], "12h": [43_200, "12 hours"], "24h": [86_400, "24 hours"], "7d": [604_800, "7 days"], "30d": [2_592_000, "30 days"], all: [null, "all"] };
const FORTNIGHT_S = 14 * 86_400; // shortest window of the page `days`
const AT_ONCE = 2;
const POINTS = 300;
const MOST_SUBJECTS = 72; // of charts: six seeds of each of twelve games
const LEAST_SEEDS = 3;
const RETURN = "mean_return";
const MOST_ROWS = 24; // rows of the table with a sparkline

// The reader's choices are kept in the address, so that a link shows the same page.
const given = new URLSearchParams(location.hash.slice(1));
const choice = {
  window: given.get("window") in WINDOWS ? given.get("window") : "12h",
  axis: given.get("axis") in AXES ? given.get("axis") : "wall",
  series: given.get("series") ?? RETURN,
  human: given.get("human") === "yes",
  tables: given.get("tables") === "yes",
  page: 0,
};

const state = { status: null, seen_ms: null, how: "", references: {}, pages: {}, errors: {}, open: new Set(), bands: [], all_causes: false };

// --- pages that are requested periodically -------------------------------------------------------------------------------

const since = () => (WINDOWS[choice.window][0] === null ? "all" : `${WINDOWS[choice.window][0]}s`);
const PAGES = { // the most visible page is requested first
  curves: {
    every_ms: () => Math.max(10, Math.min(60, state.pages.curves?.period_s ?? 10)) * 1000,
    query: () => ({ since: since(), subjects: subjects().join(), series: series().join(), points: POINTS }),
    ready: () => state.status.programs.length > 0,
  },
  report: { every_ms: () => 30_000, query: () => ({ since: since() }) },
  incidents: { every_ms: () => 30_000, query: () => ({ since: since(), limit: 1, chars: 0 }) },
  timeline: { every_ms: () => 30_000, query: () => ({ since: since() }) },
  level: { every_ms: () => 30_000, query: () => ({}) },
  cost: { every_ms: () => 60_000, query: () => ({ since: since() }) },
  days: { every_ms: () => 300_000, query: () => ({ since: since() === "all" ? "all" : `${Math.max(WINDOWS[choice.window][0], FORTNIGHT_S)}s` }) },
};
const due_ms = Object.fromEntries(Object.keys(PAGES).map((name) => [name, 0]));
const asking = new Set();

/** Request the pages that are due, two at a time: the daemon has other work as well. */
async function ask() {
  if (document.hidden || !state.status) return;
  const due = Object.keys(PAGES).find((name) => Date.now() >= due_ms[name] && !asking.has(name) && (PAGES[name].ready?.() ?? true));
  if (!due || asking.size >= AT_ONCE) return;
  asking.add(due);
  due_ms[due] = Infinity;
  const one = askFor(due);
  await Promise.all([one, ask()]);
}

async function askFor(name) {
  const { every_ms, query } = PAGES[name];
  const { data, error } = await page(name, query());
  asking.delete(name);
  if (data) state.pages[name] = data;
  if (data && name === "timeline") state.bands = bandsOf(data);
  state.errors[name] = error ?? "";
  if (due_ms[name] === Infinity) due_ms[name] = Date.now() + every_ms(); // otherwise `renew` has made it due again meanwhile
  draw();
  await ask();
}

function renew(...names) {
  for (const name of names) due_ms[name] = 0;
  return ask();
}

/** Programs whose curves are visible: the same number of seeds for each game on the page, and the first rows. */
function subjects() {
  const { shown } = shownGames(state.status, choice);
  const most = Math.max(LEAST_SEEDS, Math.floor(MOST_SUBJECTS / Math.max(1, shown.length)));
  const drawn = shown.flatMap(([, names]) => names.slice(0, most));
  const rows = shownPrograms(state.status, state.open).map(({ name }) => name);
  return [...new Set([...drawn, ...rows.slice(0, MOST_ROWS)])];
}

/** The choice, with the mean return if the chosen figure no longer exists: a script's own figure is gone with the script. */
const present = () => (choices(state.status).has(choice.series) ? choice : { ...choice, series: RETURN });

const series = () => [...new Set([RETURN, "steps_per_s", present().series])];

// --- updates from the daemon -----------------------------------------------------------------------------------------------

let soon = 0;

function onEvent(kind, data) {
  if (kind === "how") state.how = data;
  if (kind === "whole") setStatus(data);
  if (kind === "change" && state.status) setStatus(applied(state.status, data));
}

function setStatus(status) {
  const before = state.status;
  if (status.wall_s !== before?.wall_s) state.seen_ms = Date.now();
  state.status = status;
  if (before && phases(before) !== phases(status)) {
    clearTimeout(soon);
    soon = setTimeout(() => renew("report", "level", "cost", "incidents", "timeline"), SOON_MS);
  }
  draw();
  if (!before) ask();
}

/** A key whose change makes reports out of date. A quick restart changes only the number of the attempt. */
const phases = ({ programs, daemon }) =>
  `${programs.map(({ name, phase, attempt }) => `${name} ${phase} ${attempt}`)} ${daemon.level?.name} ${daemon.reboots_total}`;

// --- drawing ---------------------------------------------------------------------------------------------------------------

const charts = new Charts(() => ({
  slots: Object.fromEntries((state.pages.level?.levels ?? []).map(({ name, slots }) => [name, slots])),
  usd_per_hour: state.status?.daemon.usd_per_hour ?? null,
  references: state.references,
  bands: state.bands,
  window: window_s(),
}));

/** The window that is shown, in wall time. */
function window_s() {
  const { curves, timeline: events } = state.pages;
  const { since_s, until_s, until_wall_s } = curves ?? events ?? { since_s: 0, until_s: 1, until_wall_s: 1 };
  return [until_wall_s - (until_s - since_s), until_wall_s];
}

const timeline = new Timeline((band) => openBand(band, window_s()[1]));

const on = {
  program: (name) => openProgram(name, () => state.status.programs.find((view) => view.name === name)),
  toggle(game) {
    if (!state.open.delete(game)) state.open.add(game);
    renew("curves");
    draw();
  },
  choose(part) {
    const before = { ...choice };
    Object.assign(choice, part);
    const words = { window: choice.window, axis: choice.axis, series: choice.series, human: choice.human ? "yes" : "", tables: choice.tables ? "yes" : "" };
    history.replaceState(null, "", `#${new URLSearchParams(Object.entries(words).filter(([, word]) => word))}`);
    if (before.window !== choice.window) renew("report", "cost", "curves", "incidents", "timeline");
    else if (before.series !== choice.series || before.page !== choice.page) renew("curves");
    draw();
  },
  pin: askPin,
  unpin: askUnpin,
  cause: (group) => openCause(group, since(), window_s()[1]),
  allCauses() {
    state.all_causes = true;
    draw();
  },
};

const at = (id) => document.querySelector(`#${id} .body`) ?? document.getElementById(id);
let drawing = 0;

/** Draw at most once per frame. */
function draw() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    drawNow();
  });
}

function drawNow() {
  const { status, pages, errors, open } = state;
  const { report, level, curves, incidents, days, cost: bill } = pages;
  const curve = new Map((curves?.subjects ?? []).map((subject) => [subject.program, subject]));
  render(status ? where(status.daemon) : nothing, at("box"));
  render(controls(), at("controls"));
  const end = status?.daemon.when_done; // with a cause: the work is over, and the box is about to be stopped
  render(html`<p class="sentence">${report ? sentence(report) : html`&nbsp;`}</p>${end?.cause ? html`<p class="trouble">${end.line}</p>` : nothing}`, at("sentence"));
  render(trained({ status, subjects: curve, open, on }), at("trained"));
  render(next({ report, level, cost: bill, error: errors.report || errors.level, on }), at("next"));
  render(well({ status, curves, choice: status ? present() : choice, error: errors.curves, charts, on }), at("well"));
  render(broke({ incidents, bands: state.bands, error: errors.incidents, all: state.all_causes, on }), at("broke"));
  render(cost({ cost: bill, days, error: errors.cost || errors.days }), at("cost"));
  charts.sync(at("well"));
  timeline.sync(at("broke"), state.bands, window_s());
  refreshDialog();
  drawAge();
}

const where = ({ box, level, boot_up_s }) => [
  box?.hostname, level?.name && `level ${level.name}${level.trial ? " on trial" : ""}`, known(boot_up_s) && `up ${span(boot_up_s)}`,
].filter(Boolean).join(" · ");

const controls = () => html`<label>Since <select @change=${(event) => on.choose({ window: event.target.value })}>${
  Object.entries(WINDOWS).map(([key, [, word]]) => html`<option value=${key} ?selected=${key === choice.window}>${word}</option>`)}</select></label>`;

let shownAge = "";

/** Show the age of the newest status; an old status turns the page grey. */
function drawAge() {
  const age_ms = state.seen_ms === null ? null : Date.now() - state.seen_ms;
  const old = age_ms !== null && age_ms > OLD_MS;
  document.body.classList.toggle("old", old);
  const words = state.seen_ms === null ? "Connecting …"
    : old ? `No update for ${span(age_ms / 1000)}: showing the state at ${clockSeconds(state.status.wall_s)}`
    : `${state.status.daemon.state === "running" ? "live" : `the daemon is ${state.status.daemon.state}`}`;
  if (words !== shownAge) document.getElementById("live").textContent = shownAge = words;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  charts.recolour();
  timeline.recolour();
});
document.addEventListener("visibilitychange", ask);
setInterval(() => {
  drawAge();
  ask();
}, 1000);

fetch(new URL("references.json", import.meta.url)).then((answer) => answer.json()).then((found) => {
  state.references = found;
  draw();
});
for (const id of ["sentence", "live"]) at(id).replaceChildren(); // remove the placeholders of the loading page
new Live(onEvent, () => state.status);
draw();

export { charts, renew }; // for tests: they have no other access to the page
