// The sentences at the top of the page: the whole box over the window, the box now, one program now, and a page without news.

import { around, clockSeconds, count, dollars, few, figures, known, moment, percent, plural, span } from "../text.js";
import { inStates, stateOf, trainings } from "./status.js";

/** The sentence for the page `report`. Unknown parts are left out. */
export function sentence(report) {
  const trained = report.programs.filter(({ trained_s }) => trained_s > 0).length;
  const kept = `${count(report.kept_steps)} steps kept`;
  const parts = [
    `${trained} of ${report.programs.length} trained`,
    known(report.useful_share) ? `${kept} (${percent(report.useful_share).replace(" ", "\u00a0")} of the time useful)` : kept,
    report.reboots ? plural(report.reboots, "reboot") : "no reboot",
  ];
  if (known(report.usd)) parts.push(dollars(report.usd));
  if (known(report.next.days)) {
    const but = Object.keys(report.next.but ?? {});
    parts.push(`${but.length ? `all but ${few(but)} ` : ""}done ${moment(report.until_wall_s + report.next.days * 86400, report.until_wall_s)}${around(report.next)}`);
  }
  return `Since ${moment(report.since_wall_s, report.until_wall_s)}: ${parts.join(", ")}.`;
}

/** The box now, of the status alone: it is known before all reports. */
export function nowSentence({ programs, daemon, wall_s }) {
  const works = trainings(programs);
  if (!works.length) return programs.length ? "Only services run here." : "No program is configured.";
  return allDone(works, daemon, wall_s) || `Now ${inStates(works)}${
    daemon.level?.name ? `, at level ${daemon.level.name}` : ""}.`;
}

/** "All done since 01:49, the box costs $1.20 an hour." Empty while work is left. */
export function allDone(programs, { usd_per_hour: price }, now_s) {
  const works = trainings(programs);
  if (!works.length || works.some(({ phase }) => phase !== "DONE")) return "";
  const since_s = Math.max(...works.map(({ since_wall_s }) => since_wall_s));
  return `All done since ${moment(since_s, now_s)}${known(price) ? `, the box costs ${dollars(price)} an hour` : ""}.`;
}

/** What a program does now. */
export function programSentence(view) {
  const { word } = stateOf(view);
  if (view.service && view.phase === "RUNNING") return `${view.name} is a service: it runs beside the training, up ${span(view.uptime_s)}, attempt ${count(view.attempt)}.`;
  if (view.phase !== "RUNNING" && view.phase !== "STARTING") {
    const last = known(view.steps) ? `, ${count(view.steps)} steps made` : "";
    const wait = known(view.retry_in_s) ? `; next start in ${span(view.retry_in_s)}` : "";
    return `${view.name} is ${word.replace(/^(waits|restarts|fails)/, (verb) => ({ waits: "waiting", restarts: "restarting", fails: "failing" })[verb])}${last}: ${view.why}${wait}.`;
  }
  const goal = view.target_kind === "env_steps" && known(view.target) ? ` of ${count(view.target)}` : "";
  const parts = [
    known(view.steps) && `step ${count(view.steps)}${goal}`,
    known(view.steps_per_s) && `${figures(view.steps_per_s)} steps/s`,
    known(view.mean_return) && `return ${figures(view.mean_return)}`,
    known(view.num_envs) && `${count(view.num_envs)} environments, batch ${figures(view.batch_size)}`,
    `attempt ${count(view.attempt)}, up ${span(view.uptime_s)}`,
    known(view.ckpt_age_s) && `saved ${view.ckpt_age_s < 2 ? "now" : `${span(view.ckpt_age_s)} ago`}`,
    known(view.eta_s) && `${span(view.eta_s)} left`,
  ].filter(Boolean);
  return `${view.name} is ${word}: ${parts.join(", ")}.`;
}

/**
 * A page without news, or (`status` is null) without a first answer: {why, todo}. `probe` is the answer to a request of now: undefined (none yet), {data}, or {error, status, late}.
 */
export function gone(status, probe) {
  const daemon = status?.daemon ?? {};
  const before = !status ? "" : daemon.when_done?.cause ? `Before that: ${daemon.when_done.line}. `
    : daemon.notices?.standing?.length ? "An end of this box was announced before. "
    : daemon.state === "running" ? "" : `Before that the daemon was ${daemon.state}. `;
  const since = status ? `Since ${clockSeconds(status.wall_s)} nothing new has come.` : "No answer has come yet.";
  const [why, todo] = !navigator.onLine ? ["This computer has no network.", "Connect it."]
    : !probe ? ["Asking why …", ""]
    : probe.data ? ["The daemon answers, but its state does not change: its loop is busy or hangs.", `Run extralifectl status on the box; its log is ${daemon.main_log ?? "extralife.log"}.`]
    : probe.late ? ["A request gets no answer: the box is overloaded or suspended, or its network is gone.", "Log in to the box; if that fails too, look at it in your provider's console."]
    : probe.status ? [`The daemon refuses: ${probe.error}.`, "Run extralifectl status on the box."]
    : ["Nothing answers at this address: the ssh tunnel or extralifectl dashboard has ended, the daemon has stopped, or the box is down or reboots.",
      "Open the tunnel again. If that fails, look at the box in your provider's console; if it works, run systemctl status extralife on the box. Workers train on without the daemon."];
  return { why: `${since} ${why}`, todo: `${before}${todo} This page goes on by itself.` };
}
