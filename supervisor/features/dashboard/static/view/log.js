// The logs of one program, live: opened at their end, and continued while the page is visible.

import { logPart } from "../api.js";
import { cleaned } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";

const EVERY_MS = 4_000;
const FIRST_BYTES = 16_000;
const MOST_CHARS = 200_000;
const CHANNELS = ["stderr", "stdout"];
const END_PX = 24; // nearer to its end, a log follows what is written

export class Logs {
  #program = "";
  #channels = {};
  #asking = false;
  #due_ms = 0;

  /** `changed()` is called when there is more text. */
  constructor(changed) {
    this.changed = changed;
  }

  /** Follow the logs of this program; empty: of none. */
  follow(program) {
    if (program === this.#program) return;
    this.#program = program;
    this.#due_ms = 0;
    this.#channels = Object.fromEntries((program ? CHANNELS : []).map((channel) => [channel, { text: null, error: "", next: null, decoder: new TextDecoder() }]));
  }

  async ask() {
    if (!this.#program || this.#asking || document.hidden || Date.now() < this.#due_ms) return;
    this.#asking = true;
    const [program, channels] = [this.#program, this.#channels]; // the reader may leave the page meanwhile
    for (const channel of CHANNELS) await this.#read(program, channel, channels[channel]);
    this.#asking = false;
    this.#due_ms = channels === this.#channels ? Date.now() + EVERY_MS : 0;
  }

  async #read(program, channel, log) {
    const { data, next, error } = await logPart(program, channel, log.next ?? { tail: FIRST_BYTES });
    const more = data ? cleaned(log.decoder.decode(data, { stream: true })) : "";
    const before = `${log.text}${log.error}`;
    log.error = error ?? "";
    log.text = ((log.text ?? "") + more).slice(-MOST_CHARS);
    if (next) log.next = next;
    if (`${log.text}${log.error}` !== before) this.changed();
  }

  show() {
    const logs = Object.values(this.#channels);
    if (logs.every(({ text, error }) => text === "" && !error)) return html`<p>Nothing was written yet.</p>`;
    return Object.entries(this.#channels).map(([channel, { text, error }]) => (text === "" && !error ? nothing : html`<h3>${channel}</h3>
      ${error ? html`<p class="trouble">${error}</p>` : nothing}
      <pre class="log" tabindex="0" role="region" aria-label="the end of ${channel}">${text ?? "…"}</pre>`));
  }

  /** Call it with the drawing of the page: a log that shows its end goes on showing it. */
  keepEnd(root, draw) {
    const ends = [...root.querySelectorAll("pre.log")].filter((log) => log.scrollHeight - log.scrollTop - log.clientHeight > END_PX && log.dataset.seen);
    draw();
    for (const log of root.querySelectorAll("pre.log")) {
      if (!ends.includes(log)) log.scrollTop = log.scrollHeight;
      log.dataset.seen = "yes";
    }
  }
}
