// Receives the daemon's status by one stream per browser: a browser opens six connections to a server, so a seventh tab would
// hang.
//
// One of the visible tabs holds a lock and the stream, and passes the events on to the others. A hidden tab holds neither. If
// the browser has no locks (the page is neither from localhost nor encrypted), each tab has its own stream. If the server
// refuses a stream, the tab polls every two seconds.

import { page } from "./api.js";
import { cleaned } from "./text.js";

const NAME = "extralife-stream";
const POLL_MS = 2_000;
const RETRY_MS = 30_000;

export class Live {
  #notify;
  #current;
  #channel = new BroadcastChannel(NAME);
  #leads = false;
  #ended = new AbortController();

  /** `notify(kind, data)` is called with "whole" and "change"; `current()` is the newest status. */
  constructor(notify, current) {
    this.#notify = notify;
    this.#current = current;
    this.#channel.onmessage = ({ data }) => this.#heard(data);
    document.addEventListener("visibilitychange", () => this.#seen());
    this.#seen();
  }

  #seen() {
    this.#ended.abort();
    if (document.hidden) return;
    this.#ended = new AbortController();
    this.#waitForLock(this.#ended.signal);
    this.#channel.postMessage({ kind: "hello" });
  }

  #heard({ kind, data }) {
    if (kind === "hello") {
      const whole = this.#leads && this.#current();
      if (whole) this.#channel.postMessage({ kind: "whole", data: whole });
    } else if (!this.#leads && !document.hidden) {
      this.#notify(kind, data);
    }
  }

  /** Wait for the lock, then lead until this tab is hidden. */
  async #waitForLock(signal) {
    if (!navigator.locks) return this.#lead(signal);
    try {
      await navigator.locks.request(NAME, { signal }, () => this.#lead(signal));
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  async #lead(signal) {
    this.#leads = true;
    try {
      while (!signal.aborted) {
        await this.#stream(signal);
        await this.#poll(signal);
      }
    } finally {
      this.#leads = false;
    }
  }

  #pass(kind, data) {
    this.#notify(kind, data);
    this.#channel.postMessage({ kind, data });
  }

  /** Read the stream until the tab is hidden or the server refuses it. After a break, the browser reconnects by itself. */
  #stream(signal) {
    return new Promise((ended) => {
      const source = new EventSource("/api/v1/stream");
      const over = () => {
        source.close();
        ended();
      };
      for (const kind of ["whole", "change"]) {
        source.addEventListener(kind, ({ data }) => this.#pass(kind, cleaned(JSON.parse(data))));
      }
      source.onerror = () => source.readyState === EventSource.CLOSED && over();
      signal.addEventListener("abort", over);
    });
  }

  async #poll(signal) {
    const end_ms = Date.now() + RETRY_MS;
    while (!signal.aborted && Date.now() < end_ms) {
      const { data } = await page("status");
      if (signal.aborted) return;
      if (data) this.#pass("whole", data);
      await new Promise((slept) => setTimeout(slept, POLL_MS));
    }
  }
}
