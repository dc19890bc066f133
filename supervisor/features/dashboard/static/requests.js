// The schedule of requests for reports: the pages that a view needs, each at its own rate, at once when its query changes.

import { page } from "./api.js";

const AT_ONCE = 2; // the daemon has other work as well

export class Requests {
  #specs;
  #got;
  #due_ms = {};
  #asked = {}; // by name: the query of the newest request
  #asking = new Set();

  /** `specs`: name -> {page, wanted(), every_ms(), query()}, the most visible first. `got(name, {data, error})` gets each answer. */
  constructor(specs, got) {
    this.#specs = specs;
    this.#got = got;
  }

  /** Ask for these again now; without names, for all. */
  renew(...names) {
    for (const name of names.length ? names : Object.keys(this.#specs)) this.#due_ms[name] = 0;
    return this.ask();
  }

  /** Request what is due; several calls at once do no harm. */
  async ask() {
    if (document.hidden || this.#asking.size >= AT_ONCE) return;
    const found = Object.entries(this.#specs).filter(([name, { wanted }]) => !this.#asking.has(name) && wanted())
      .map(([name, { query }]) => [name, query()])
      .find(([name, query]) => Date.now() >= (this.#due_ms[name] ?? 0) || JSON.stringify(query) !== this.#asked[name]);
    if (!found) return;
    await Promise.all([this.#one(...found), this.ask()]);
  }

  async #one(name, query) {
    const key = JSON.stringify(query);
    this.#asking.add(name);
    this.#asked[name] = key;
    this.#due_ms[name] = Infinity;
    const { page: path = name, every_ms } = this.#specs[name];
    const answer = await page(path, query);
    this.#asking.delete(name);
    if (this.#due_ms[name] === Infinity) this.#due_ms[name] = Date.now() + every_ms(); // otherwise `renew` has made it due again meanwhile
    if (!this.#specs[name].wanted() || JSON.stringify(this.#specs[name].query()) === key) this.#got(name, answer);
    await this.ask();
  }
}
