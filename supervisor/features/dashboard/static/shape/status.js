// The status of the daemon and its programs: how changes are applied, words and shapes of states, the order of programs.

import { known } from "../text.js";
import { meanOf } from "./curves.js";

/** `status` with a change of the stream: changed keys of the daemon and of programs, gone programs, other keys as they are. */
export function applied(status, { daemon, programs = {}, gone = [], ...rest }) {
  const left = new Map(status.programs.filter(({ name }) => !gone.includes(name)).map((view) => [view.name, view]));
  for (const [name, changed] of Object.entries(programs)) left.set(name, { ...left.get(name), name, ...changed });
  const sorted = [...left.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
  return { ...status, ...rest, daemon: { ...status.daemon, ...daemon }, programs: sorted };
}

// The word, shape and tone of a state, and its rank `first` (lower: shown earlier; none: healthy or intended).
const PHASES = {
  FATAL: { word: "given up", shape: "cross", first: 0, tone: "act" },
  EXITED: { word: "failed", shape: "cross", first: 0, tone: "act" },
  BACKOFF: { word: "restarts soon", shape: "triangle", first: 2, tone: "watch" },
  GATED: { word: "waits for memory", shape: "ring", first: 4, tone: "watch" },
  RUNNING: { word: "training", shape: "disc", tone: "quiet" },
  STARTING: { word: "starting", shape: "half", tone: "quiet" },
  STOPPING: { word: "leaving", shape: "half", tone: "quiet" },
  QUEUED: { word: "waits for a slot", shape: "ring", tone: "quiet" },
  DONE: { word: "done", shape: "check", tone: "done" },
  STOPPED: { word: "stopped", shape: "square", tone: "quiet" },
};
const TROUBLES = {
  stalled: { word: "stalled", shape: "triangle", first: 1, tone: "act" },
  unsaved: { word: "cannot save", shape: "triangle", first: 1, tone: "act" },
  no_gpu: { word: "waits for its GPU", shape: "triangle", first: 1, tone: "act" },
  background: { word: "in the background", shape: "triangle", first: 3, tone: "watch" },
  ill: { word: "unhealthy", shape: "triangle", first: 3, tone: "watch" },
  slow: { word: "slow", shape: "triangle", first: 3, tone: "watch" },
};
const UNSEEN = { word: "unknown", shape: "ring", tone: "quiet" };

/** How a program's state is shown: {word, shape, tone, first}. */
export function stateOf({ phase, trouble, slow_retry, worker_phase, service }) {
  if ((phase === "RUNNING" || phase === "GATED") && trouble) return TROUBLES[trouble] ?? TROUBLES.ill;
  if (phase === "BACKOFF" && slow_retry) return { ...PHASES.BACKOFF, word: "fails repeatedly", first: 1, tone: "act" };
  if (phase === "RUNNING" && service) return { ...PHASES.RUNNING, word: "runs" };
  if (phase === "RUNNING" && worker_phase && worker_phase !== "training") return { ...PHASES.RUNNING, word: worker_phase };
  return PHASES[phase] ?? UNSEEN;
}

/** How many things need somebody, of the status alone: the count of the tab's title. The page `report` says them in words. */
export function needsYou({ programs, daemon }) {
  const states = programs.filter(({ phase, slow_retry, trouble }) => ["FATAL", "EXITED"].includes(phase) || slow_retry || ["no_gpu", "background", "unended"].includes(trouble));
  return states.length + (daemon.foundations?.length ?? 0) + (daemon.journal?.error ? 1 : 0) + (daemon.config ? 1 : 0);
}

/** The programs that train; services (a TensorBoard, a log shipper) do not. */
export const trainings = (programs) => programs.filter(({ service }) => !service);
export const groupOf = ({ name, game, group }) => game || group || name;
const SAME = new Set(["seed", "game", "group", "command"]);
const WORDS = /(?:^|\s)(?:--([\w-]+)(?:=|\s+)|([a-z_][\w.]*)=)(?!--)(\S+)/g; // of a command: --lr 1e-4, --lr=1e-4, lr=1e-4
const MOST_VALUES = 12;

/** The settings in which programs differ, of the page `config`: a Map of their names, each with a Map of program to value. */
export function varied(rows, programs) {
  const found = new Map();
  const names = new Map(trainings(programs).flatMap(({ name }) => [[name, name], [JSON.stringify(name), name]])); // a name with dots is in quotes
  const put = (name, key, value) => (found.has(key) ? found.get(key) : found.set(key, new Map()).get(key)).set(name, String(value));
  for (const { key, value } of rows) {
    let end = key.length;
    do end = key.lastIndexOf(".", end - 1); while (end > 8 && !names.has(key.slice(8, end)));
    if (end <= 8 || !key.startsWith("program.") || value === null) continue;
    const [name, own] = [names.get(key.slice(8, end)), key.slice(end + 1)];
    put(name, own, value);
    if (own === "command") for (const [, option, word, text] of [value].flat().join(" ").matchAll(WORDS)) put(name, option ?? word, text);
  }
  const differs = (values) => values.size > 1 && new Set(values.values()).size > 1 && new Set(values.values()).size <= MOST_VALUES;
  return new Map([...found].filter(([key, values]) => !SAME.has(key) && differs(values)).sort());
}

/** How programs are grouped: by game, or also by the value of a setting: "Pong · lr 0.0001". */
export function groupBy(key, settings, programs) {
  const [values, games] = [settings?.get(key), new Set(programs.map(({ game }) => game)).size > 1];
  return (view) => (values?.has(view.name) ? [games && view.game, `${key} ${values.get(view.name)}`].filter(Boolean).join(" · ") : groupOf(view));
}

const MOST_SINGLE = 12;

/** {first: programs that need a look, worst first, groups: [[game, programs]] of the others, single: whether they are few}. */
export function sortedPrograms(programs) {
  const rank = (view) => stateOf(view).first ?? 9;
  const first = programs.filter((view) => rank(view) < 9).sort((one, other) => rank(one) - rank(other));
  return { first, groups: grouped(programs.filter((view) => rank(view) === 9)), single: programs.length <= MOST_SINGLE };
}

/** "16 training, 98 wait for a slot". */
export const inStates = (programs) => stateCounts(programs).map(([word, number]) => `${number} ${word}`).join(", ");

/** Number of programs by their state, most frequent first: [["training", 4], ["wait for a slot", 2], ["done", 1]]. */
export function stateCounts(programs) {
  const found = new Map();
  for (const view of programs) found.set(stateOf(view).word, (found.get(stateOf(view).word) ?? 0) + 1);
  return [...found].sort(([, one], [, other]) => other - one).map(([word, number]) => [number > 1 ? word.replace(/^(\w+)s /, "$1 ") : word, number]);
}

/** Groups (games) with their programs, in the order of their names. */
export function grouped(programs, of = groupOf) {
  const found = new Map();
  for (const view of programs) found.set(of(view), [...(found.get(of(view)) ?? []), view]);
  return [...found].sort(([one], [other]) => (one < other ? -1 : 1));
}

/** The figures of programs together: {n, mean, spread, least, most, best, rate, steps}. Unknown is null. */
export function together(views) {
  const all = (name) => views.map((view) => view[name]).filter(known);
  const way = (values, of) => (values.length ? of(values) : null);
  const sum = (values) => way(values, (list) => list.reduce((total, value) => total + value, 0));
  const returns = all("mean_return");
  const mean = meanNow(views, "mean_return");
  const spread = returns.length > 1 ? Math.sqrt(sum(returns.map((value) => (value - mean) ** 2)) / (returns.length - 1)) : null;
  const [least, most] = [Math.min, Math.max].map((end) => way(returns, (list) => end(...list)));
  return { n: returns.length, mean, spread, least, most, best: way(all("best_return"), (list) => Math.max(...list)), rate: sum(all("steps_per_s")), steps: sum(all("steps")) };
}

/** What programs report of a figure now: its mean over those that do, the one value of the whole page. `scale(view)` scales it. */
export const meanNow = (views, name, scale = () => (value) => value) =>
  meanOf(views.flatMap((view) => [view[name] ?? view.figures?.[name]].filter(known).map(scale(view.name))));
