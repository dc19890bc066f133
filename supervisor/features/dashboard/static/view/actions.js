// The requests that the page can send to the daemon. Each first asks the reader, in a sentence that says what will happen.

import { act } from "../api.js";
import { figures } from "../text.js";
import { html } from "../vendor/lit-html/lit-html.js";
import { confirm } from "./dialog.js";

const results = ({ results: list }) => list.map(({ name, text }) => `${name}: ${text}`).join("; ") || "done";

const VERBS = {
  start: ["Start", (name) => `${name} is started, or waits for a free slot.`],
  stop: ["Stop", (name) => `${name} saves a checkpoint and leaves. It stays stopped, also after a reboot, until someone starts it.`],
  restart: ["Restart", (name) => `${name} saves a checkpoint, leaves and starts again from it.`],
};

export function askProgram(verb, name) {
  const [word, what] = VERBS[verb];
  confirm({
    title: `${word} ${name}?`, what: what(name), word: `${word} ${name}`,
    act: () => act("ask", { verb, names: [name], wait: false }), answered: results,
  });
}

export function askBackup(name) {
  confirm({
    title: `Back up ${name}?`,
    what: `${name} saves a checkpoint and trains on. A backup of its newest checkpoint is kept until someone removes it.`,
    word: `Back up ${name}`,
    act: () => act("backup", { names: [name], label: "dashboard" }),
    answered: ({ name: backup }) => `The backup ${backup} is being made.`,
  });
}

const HOURS = [["1", "1 hour"], ["6", "6 hours"], ["24", "a day"], ["", "until someone unpins it"]];

export function askPin({ name, slots, num_envs, veto }) {
  let hours = "6";
  const load = slots ? ` with ${figures(slots)} programs of ${figures(num_envs)} environments` : "";
  confirm({
    title: `Pin level ${name}?`,
    what: `The box trains at level ${name}${load}, and no other level is tried. Programs whose load changes save, leave and start again.${
      veto ? ` This overrides a veto: ${veto}` : ""}`,
    word: `Pin ${name}`,
    more: () => html`<p><label>For <select @change=${(event) => (hours = event.target.value)}>${HOURS.map(([value, word]) =>
      html`<option value=${value} ?selected=${value === "6"}>${word}</option>`)}</select></label></p>`,
    act: () => act("level", hours ? { pin: name, for_s: Number(hours) * 3600 } : { pin: name }),
    answered: ({ text }) => text || `${name} is pinned.`,
  });
}

export function askUnpin(name) {
  confirm({
    title: `Unpin level ${name}?`,
    what: `The box chooses its level by itself again, beginning with ${name}.`,
    word: "Unpin",
    act: () => act("level", { unpin: true }),
    answered: ({ text }) => text || "Unpinned.",
  });
}
