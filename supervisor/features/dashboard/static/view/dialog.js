// One dialog for everything that opens: evidence, a program, a question before an action, and the answer.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";

const dialog = document.getElementById("dialog");
let draw = null;

dialog.addEventListener("close", () => {
  draw = null;
  render(nothing, dialog);
});
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // a click outside closes it

/** Show the result of `content()` under a title. Each `refresh` calls `content()` again. */
export function open(title, content) {
  draw = () => html`<header><h2 id="dialog-title">${title}</h2>
    <button class="plain close" aria-label="Close" @click=${() => dialog.close()}>✕</button></header>
    <div class="content">${content()}</div>`;
  render(draw(), dialog);
  if (!dialog.open) dialog.showModal();
}

export function refresh() {
  if (draw) render(draw(), dialog);
}

/**
 * Ask before an action: `what` is a sentence that says what will happen, `word` is the label of the button. `act()` returns
 * {data} or {error}; `answered(data)` returns the message to show.
 */
export function confirm({ title, what, word, more = () => nothing, act, answered }) {
  const asked = { at: "asked", text: "" };
  const run = async () => {
    asked.at = "waiting";
    refresh();
    const { data, error } = await act();
    asked.at = error ? "refused" : "done";
    asked.text = error ?? answered(data);
    refresh();
  };
  open(title, () => html`
    <p>${what}</p>${asked.at === "asked" ? more() : nothing}
    <p role="status" class=${asked.at === "refused" ? "trouble" : ""}>${
      asked.at === "waiting" ? "Asked; waits for the answer …" : asked.text}</p>
    <p class="buttons">${asked.at === "asked"
      ? html`<button class="primary" @click=${run}>${word}</button><button @click=${() => dialog.close()}>Cancel</button>`
      : html`<button @click=${() => dialog.close()}>Close</button>`}</p>`);
}
