// The page: its state, the requests that each view needs, and the panels that show it.

import { page } from "./api.js";
import { Live } from "./live.js";
import { Requests } from "./requests.js";
import { bandsOf } from "./shape/bands.js";
import { RETURN, WINDOWS, link, read, write } from "./shape/route.js";
import { allDone, gone, nowSentence, sentence } from "./shape/sentence.js";
import { applied, needsYou } from "./shape/status.js";
import { clockSeconds, known, span } from "./text.js";
import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import { askPin, askUnpin } from "./view/actions.js";
import { broke, Timeline } from "./view/broke.js";
import { Charts } from "./view/charts.js";
import { comparePage } from "./view/compare.js";
import { cost } from "./view/cost.js";
import { refresh as refreshDialog } from "./view/dialog.js";
import { openBand, openCause } from "./view/incident.js";
import { Logs } from "./view/log.js";
import { GPUS, HOST, machinePage } from "./view/machine.js";
import { next } from "./view/next.js";
import { KINDS, SAVED, programPage, seedsOf } from "./view/program.js";
import { icon } from "./view/shapes.js";
import { shownPrograms, trained } from "./view/trained.js";
import { choices, shownGames, well } from "./view/well.js";

const OLD_MS = 10_000; // status older than this turns the page grey
const FIRST_MS = 2_000; // a page without a first status for so long says why
const PROBE_MS = 5_000;
const SOON_MS = 1_500; // from a change of a program's state to the request for new reports
const FORTNIGHT_S = 14 * 86_400; // shortest window of the page `days`
const MOST_SEEDS = 30; // of each game in a chart
const MOST_ROWS = 24; // rows of the table with a sparkline
const VIEWS = { home: "Overview", compare: "Compare", box: "Box" };

let choice = read(location.hash);
const state = { status: null, seen_ms: Date.now(), references: {}, pages: {}, errors: {}, open: new Set(), bands: [], all_causes: false, probe: undefined, shown: new Set() };

// --- requests ---------------------------------------------------------------------------------------------------------------

const since = () => (WINDOWS[choice.window][0] === null ? "all" : `${WINDOWS[choice.window][0]}s`);
const on_view = (...views) => () => state.status !== null && views.includes(choice.view);
const seconds = (number) => () => number * 1000;
const period = (name) => () => Math.max(10, Math.min(60, state.pages[name]?.period_s ?? 10)) * 1000;
const facts = (kinds, limit) => ({ page: "facts", wanted: on_view("program"), every_ms: seconds(30), query: () => ({ program: choice.name, kinds, limit: -limit }) });

/** The window of curves: of the zoom, if the axis is time, so that it shows what the recorder has in detail. */
const curves_window = () => (choice.zoom && choice.axis === "wall"
  ? { since: `@${Math.floor(choice.zoom[0])}`, until: `@${Math.ceil(choice.zoom[1])}` } : { since: since() });

const sheet = (name, words) => ({
  page: "curves", wanted: on_view("box"), every_ms: period(name), query: () => ({ ...curves_window(), sheet: name, series: Object.keys(words).join(), points: 1000 }),
});

const requests = new Requests({
  report: { wanted: on_view("home"), every_ms: seconds(30), query: () => ({ since: since() }) },
  level: { wanted: on_view("home", "program", "compare", "box"), every_ms: seconds(30), query: () => ({}) },
  days: { wanted: on_view("home"), every_ms: seconds(300), query: () => ({ since: since() === "all" ? "all" : `${Math.max(WINDOWS[choice.window][0], FORTNIGHT_S)}s` }) }, // early: it takes longest, beside the others
  lines: {
    page: "curves", wanted: () => on_view("program", "compare")() && subjects().length > 0, every_ms: period("lines"),
    query: () => ({ ...curves_window(), subjects: subjects().join(), series: series().join(), points: 1500 }),
  },
  host: sheet("host", HOST),
  gpus: sheet("gpus", GPUS),
  curves: {
    wanted: () => on_view("home", "compare")() && state.status.programs.length > 0, every_ms: period("curves"),
    query: () => (choice.view === "home" ? { ...curves_window(), subjects: shownSubjects().join(), series: series().join(), points: 1000 }
      : { since: since(), series: RETURN, points: 60 }),
  },
  incidents: { wanted: on_view("home", "program"), every_ms: seconds(30), query: () => ({ since: since(), limit: 1, chars: 0, ...(choice.view === "program" ? { program: choice.name } : {}) }) },
  timeline: { wanted: on_view("home", "program", "compare", "box"), every_ms: seconds(30), query: () => ({ since: since() }) },
  cost: { wanted: on_view("home"), every_ms: seconds(60), query: () => ({ since: since() }) },
  attempts: facts(KINDS, 120),
  saved: facts(SAVED, 10),
  results: { wanted: on_view("program"), every_ms: seconds(60), query: () => ({}) },
  config: { wanted: on_view("program", "compare"), every_ms: seconds(60), query: () => ({}) },
  backups: { wanted: on_view("program"), every_ms: seconds(60), query: () => ({}) },
}, (name, { data, error }) => {
  if (data) state.pages[name] = data;
  if (data && name === "timeline") state.bands = bandsOf(data);
  state.errors[name] = error ?? data?.not_counted ?? "";
  draw();
});

const renew = (...names) => requests.renew(...names);

/** Programs whose curves are visible: the seeds of each game on the page, and the first rows. */
function shownSubjects() {
  const drawn = shownGames(state.status, choice).shown.flatMap(([, names]) => names.slice(0, MOST_SEEDS));
  const rows = shownPrograms(state.status, state.open).map(({ name }) => name);
  return [...new Set([...drawn, ...rows.slice(0, MOST_ROWS)])];
}

const subjects = () => (choice.view === "program" ? (choice.seeds ? seedsOf(state.status, choice.name) : [choice.name]) : choice.pick);

/** The choice, with the mean return if no chosen figure exists any more: a script's own figure is gone with the script. */
function present() {
  const words = choices(state.status);
  const known_ = choice.series.filter((name) => words.has(name));
  return known_.length === choice.series.length ? choice : { ...choice, series: known_.length ? known_ : [RETURN] };
}

const series = () => [...new Set([RETURN, "steps_per_s", ...present().series])].slice(0, 20);

// --- updates from the daemon -----------------------------------------------------------------------------------------------

let soon = 0;

function onEvent(kind, data) {
  if (kind === "whole") setStatus(data);
  if (kind === "change" && state.status) setStatus(applied(state.status, data));
}

function setStatus(status) {
  const before = state.status;
  if (status.wall_s !== before?.wall_s) state.seen_ms = Date.now();
  state.status = status;
  if (before && phases(before) !== phases(status)) {
    clearTimeout(soon);
    soon = setTimeout(() => renew("report", "level", "cost", "incidents", "timeline", "attempts"), SOON_MS);
  }
  draw();
  if (!before) requests.ask();
}

/** A key whose change makes reports out of date. A quick restart changes only the number of the attempt. */
const phases = ({ programs, daemon }) =>
  `${programs.map(({ name, phase, attempt }) => `${name} ${phase} ${attempt}`)} ${daemon.level?.name} ${daemon.reboots_total}`;

// --- the reader's choices ----------------------------------------------------------------------------------------------------

const OF_A_VIEW = ["lines", "incidents", "attempts", "saved", "host", "gpus", "curves"];

/** Another page, or the same one with other choices, by its address. */
function go() {
  const before = choice;
  choice = read(location.hash);
  if (before.view !== choice.view || before.name !== choice.name) {
    for (const name of OF_A_VIEW) delete state.pages[name];
    charts.keep([]);
    scrollTo(0, 0);
    document.querySelector("h1 a").focus({ preventScroll: true });
  }
  drawNow();
  requests.ask();
}

const on = {
  toggle(game) {
    if (!state.open.delete(game)) state.open.add(game);
    draw();
    requests.ask();
  },
  choose(part) {
    choice = { ...choice, ...part };
    history.replaceState(null, "", write(choice));
    draw();
    requests.ask();
  },
  pin: askPin,
  unpin: askUnpin,
  cause: (group) => openCause(group, since(), window_s()[1], choice.view === "program" ? choice.name : ""),
  allCauses: () => draw(state.all_causes = true),
};

// --- drawing ---------------------------------------------------------------------------------------------------------------

function zoom(range) {
  on.choose({ zoom: range });
  drawNow(); // a frame later, a second drag would begin from the old range
}

const charts = new Charts(() => ({
  slots: Object.fromEntries((state.pages.level?.levels ?? []).map(({ name, slots }) => [name, slots])),
  usd_per_hour: state.status?.daemon.usd_per_hour ?? null,
  references: state.references,
  bands: state.bands,
  window: window_s(),
  zoom: choice.zoom,
}), zoom);

/** The window that is shown, in wall time. */
function window_s() {
  const { curves, lines, host, timeline: events } = state.pages;
  const { since_s, until_s, until_wall_s } = events ?? curves ?? lines ?? host ?? { since_s: 0, until_s: 1, until_wall_s: 1 };
  return [until_wall_s - (until_s - since_s), until_wall_s];
}

const timeline = new Timeline((band) => openBand(band, window_s()[1]), (range) => choice.axis === "wall" && zoom(range));
const logs = new Logs(() => draw());
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
  const { status } = state;
  const home = choice.view === "home";
  document.body.classList.remove("empty");
  document.getElementById("home").hidden = !home;
  document.getElementById("page").hidden = home;
  render(status ? where(status.daemon) : nothing, at("box"));
  render(controls(), at("controls"));
  logs.follow(choice.view === "program" && status?.programs.some(({ name }) => name === choice.name) ? choice.name : "");
  if (home) drawHome();
  else drawPage();
  refreshDialog();
  drawAge();
}

function drawHome() {
  const { status, pages, errors, open } = state;
  const { report, level, curves, incidents, days, cost: bill } = pages;
  const curve = new Map((curves?.subjects ?? []).map((subject) => [subject.program, subject]));
  const shown = status ? present() : choice;
  render(first(status, report), at("sentence"));
  render(trained({ status, subjects: curve, open, choice, on }), at("trained"));
  render(next({ report, level, cost: bill, error: errors.report || errors.level, on }), at("next"));
  render(well({ status, curves, choice: shown, error: errors.curves, charts, on }), at("well"));
  render(broke({ incidents, bands: state.bands, error: errors.incidents, all: state.all_causes, on }), at("broke"));
  render(cost({ cost: bill, days, error: errors.cost || errors.days }), at("cost"));
  reveal({
    trained: status, next: (report && level) || errors.report || errors.level, well: curves || errors.curves || !status?.programs.length,
    broke: (incidents && pages.timeline) || errors.incidents || errors.timeline, cost: (bill && days) || errors.cost || errors.days,
  });
  charts.sync(at("well"));
  timeline.sync(at("broke"), state.bands, window_s(), choice.axis === "wall" ? choice.zoom : null);
}

/** A panel appears once it and those before it have their contents, so that none moves another. */
function reveal(ready) {
  let all = true;
  for (const [id, has] of Object.entries(ready)) {
    all &&= Boolean(has);
    if (all) state.shown.add(id);
    document.getElementById(id).classList.toggle("waits", !state.shown.has(id));
  }
}

/** The sentence: of the report, and until that is known of the status alone. */
function first(status, report) {
  const end = status?.daemon.when_done; // with a cause: the work is over, and the box is about to be stopped
  const done = status ? allDone(status.programs, status.daemon, status.wall_s) : "";
  const words = report ? `${done} ${sentence(report)}` : status ? nowSentence(status) : "";
  return html`<p class="sentence">${words || html`&nbsp;`}</p>${end?.cause ? html`<p class="trouble">${end.line}</p>` : nothing}`;
}

function drawPage() {
  const root = document.getElementById("page"); // its cards have bodies too
  const { status, pages, errors, open } = state;
  const view = { program: programPage, compare: comparePage, box: machinePage }[choice.view];
  logs.keepEnd(root, () => render(view({ status, pages, errors, choice: status ? present() : choice, charts, logs, open, on }), root));
  charts.sync(root);
}

const where = ({ box, level, boot_up_s }) => [
  box?.hostname, level?.name && `level ${level.name}${level.trial ? " on trial" : ""}`, known(boot_up_s) && `up ${span(boot_up_s)}`,
].filter(Boolean).join(" · ");

const controls = () => html`<nav aria-label="pages">${Object.entries(VIEWS).map(([view, word]) =>
  html`<a href=${link(choice, view)} aria-current=${view === choice.view ? "page" : nothing}>${word}</a>`)}</nav>
  <label><span>Since</span> <select @change=${(event) => on.choose({ window: event.target.value, zoom: null })}>${
  Object.entries(WINDOWS).map(([key, [, word]]) => html`<option value=${key} ?selected=${key === choice.window}>${word}</option>`)}</select></label>`;

let shownTab = null;

/** The title and the icon of the tab: whether news come, and how many things need somebody. */
function drawTab(old) {
  const { status, pages } = state;
  const number = status ? Math.max(needsYou(status), pages.report?.needs.length ?? 0) : 0;
  const [mark, word] = old ? ["?", "no answer"] : [number, number];
  const title = `${mark ? `(${word}) ` : ""}${choice.view === "program" ? `${choice.name} · ` : ""}extralife${status?.daemon.box ? ` · ${status.daemon.box.hostname}` : ""}`;
  if (title !== document.title) document.title = title;
  if (mark !== shownTab) document.querySelector("link[rel=icon]").href = icon(shownTab = mark);
}

let shownAge = "";

/** Show the age of the newest status. An old status turns the page grey, and the page asks why there is no newer one. */
function drawAge() {
  const { status, seen_ms } = state;
  const age_ms = Date.now() - seen_ms; // before the first status: since the page was opened
  const old = age_ms > (status ? OLD_MS : FIRST_MS);
  document.body.classList.toggle("old", old);
  const words = !status ? (old ? "No answer yet" : "Connecting …")
    : old ? `No update for ${span(age_ms / 1000)}: showing the state at ${clockSeconds(status.wall_s)}`
    : `${status.daemon.state === "running" ? "live" : `the daemon is ${status.daemon.state}`}`;
  if (words !== shownAge) document.getElementById("live").textContent = shownAge = words;
  if (!old) state.probe = undefined;
  const { why, todo } = old ? gone(status, state.probe?.answer) : {};
  render(old ? html`<p><strong>${why}</strong> ${todo}</p>` : nothing, at("gone"));
  if (old && !(Date.now() < state.probe?.due_ms)) probe();
  drawTab(old);
}

/** Ask why there is no newer status. A proxy may hold the stream back: then this answer is the news. */
async function probe() {
  state.probe = { answer: state.probe?.answer, due_ms: Infinity };
  const answer = await page("status");
  state.probe = { answer, due_ms: Date.now() + PROBE_MS };
  if (answer.data && answer.data.wall_s !== state.status?.wall_s) setStatus(answer.data);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [charts, timeline].forEach((each) => each.recolour()));
document.addEventListener("visibilitychange", () => requests.ask());
addEventListener("hashchange", go);
setInterval(() => {
  drawAge();
  requests.ask();
  logs.ask();
}, 1000);

fetch(new URL("references.json", import.meta.url)).then((answer) => answer.json()).then((found) => draw(state.references = found));
for (const id of ["sentence", "live"]) at(id).replaceChildren(); // remove the placeholders of the loading page
new Live(onEvent, () => state.status);
draw();

export { charts, renew }; // for tests: they have no other access to the page
