// A state is shown as a shape and a word, never only as a colour.

import { html, svg } from "../vendor/lit-html/lit-html.js";

const PATHS = {
  disc: svg`<circle cx="8" cy="8" r="5"/>`,
  ring: svg`<circle cx="8" cy="8" r="4.5" fill="none" stroke="currentColor" stroke-width="2"/>`,
  half: svg`<circle cx="8" cy="8" r="4.5" fill="none" stroke="currentColor" stroke-width="2"/><path d="M8 3.5a4.5 4.5 0 0 1 0 9z"/>`,
  square: svg`<rect x="4" y="4" width="8" height="8"/>`,
  triangle: svg`<path d="M8 2 14.5 13.5h-13z"/>`,
  cross: svg`<path d="M3 3l10 10M13 3 3 13" fill="none" stroke="currentColor" stroke-width="3"/>`,
  check: svg`<path d="M2.5 8.5l4 4 7-9" fill="none" stroke="currentColor" stroke-width="2.5"/>`,
};

export const shape = (name) => html`<svg class="shape" viewBox="0 0 16 16" aria-hidden="true">${PATHS[name] ?? PATHS.ring}</svg>`;

/** A sentence in which back ticks enclose commands. */
export const prose = (text) => String(text ?? "").split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));
export const state = ({ word, shape: name, tone }) => html`<span class="state ${tone}">${shape(name)} ${word}</span>`;

/** The icon of the tab: a cross, the number of things that need somebody, or "?" while nothing answers. */
export function icon(number) {
  const colour = number === "?" ? "#57606a" : number ? "#b34700" : "#0072b2";
  const mark = number ? `<text x='8' y='12.5' font-family='sans-serif' font-weight='bold' font-size='${number > 9 ? 9 : 12}' text-anchor='middle' fill='white'>${number > 99 ? 99 : number}</text>`
    : "<path d='M8 3v10M3 8h10' stroke='white' stroke-width='2.5'/>";
  const image = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='3' fill='${colour}'/>${mark}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(image)}`;
}
