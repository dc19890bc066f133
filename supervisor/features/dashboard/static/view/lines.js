// Chosen curves: one large chart per figure, one line per program or game, with a legend of values, and PNG and CSV of them.

import { AXES, asTable, csvOf, frame, linesOf, normalised } from "../shape/curves.js";
import { RETURN, SMOOTH, link } from "../shape/route.js";
import { groupOf, meanNow } from "../shape/status.js";
import { amountOf } from "../text.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { lineOf } from "./chart.js";
import { BANDS, humanBox, legend, plot, radios, table, tablesBox, zoomed } from "./well.js";

const MOST_LINES = 24;

/**
 * `names` are the chosen programs, `views` their states; `more` are further controls; `words` the figures that can be shown.
 * `answer` is the page `curves` of these programs.
 */
export function lines({ names, views, answer, choice, words, error, charts, on, of = groupOf, more = nothing }) {
  const shown = choice.series.filter((name) => words.has(name));
  charts.keep(shown);
  const groups = groupsOf(names, views, choice.mean && of);
  const rest = [...words].filter(([name]) => !shown.includes(name));
  return html`
    <div class="tools">
      ${radios("Axis", "lines-axis", AXES, choice.axis, (axis) => on.choose({ axis, zoom: null }))}
      <label>Add a figure <select .value=${""} @change=${(event) => {
        on.choose({ series: [...shown, event.target.value] });
        event.target.value = "";
      }}><option value="" selected>–</option>${rest.map(([name, word]) => html`<option value=${name}>${word}</option>`)}</select></label>
      <label>Smoothing <select @change=${(event) => on.choose({ smooth: Number(event.target.value) })}>${
        Object.entries(SMOOTH).map(([value, word]) => html`<option value=${value} ?selected=${Number(value) === choice.smooth}>${word}</option>`)}</select></label>
      <label><input type="checkbox" .checked=${choice.log} @change=${(event) => on.choose({ log: event.target.checked })}> log scale</label>
      ${more}
      ${humanBox(choice, on)}
      ${tablesBox(choice, on)}
      <span class="buttons"><button @click=${() => savePng(shown, groups, words, choice, charts)}>PNG</button>
        <button @click=${() => saveCsv(shown, charts)}>CSV</button></span>
      ${zoomed(choice, on)}
    </div>
    ${error ? html`<p class="trouble">Curves: ${error}</p>` : nothing}
    ${legend(Object.keys(BANDS))}
    ${groups.length ? html`<div class="large">${repeat(shown, (name) => name, (name) => chart(name, shown, groups, views, answer, choice, words, charts, on))}</div>`
    : html`<p class="muted">Choose programs below.</p>`}
    ${groups.length === MOST_LINES ? html`<p class="muted">The first ${MOST_LINES} lines are drawn.</p>` : nothing}`;
}

/** [{name, ink, programs}]: each program a line, or with `of` each group the mean of its chosen programs. */
function groupsOf(names, views, of) {
  const found = new Map();
  for (const name of names) {
    const view = views.find((each) => each.name === name);
    const key = of && view ? of(view) : name;
    found.set(key, [...(found.get(key) ?? []), name]);
  }
  return [...found].slice(0, MOST_LINES).map(([name, programs], ink) => ({ name: programs.length > 1 ? `${name} (n ${programs.length})` : programs[0], ink, programs }));
}

function modelOf(name, groups, answer, choice, charts) {
  const stamp = [answer, choice.axis, choice.smooth, choice.log, choice.human, groups.map((group) => `${group.name} ${group.programs}`).join()];
  return charts.model(name, stamp, ({ slots, usd_per_hour, references }) => {
    const has = groups.map(({ programs, ...group }) => ({ ...group, subjects: (answer?.subjects ?? []).filter(({ program }) => programs.includes(program)) }));
    const scale = (program, reference = references[program.replace(/-s\d+$/, "")]) => (choice.human && name === RETURN && reference ? normalised(reference) : (value) => value);
    const about = frame(answer ?? { period_s: 1, until_s: 0, until_wall_s: 0 }, slots, usd_per_hour);
    const model = linesOf(has, name, choice.axis, about, { smooth: choice.smooth, scale });
    return { ...model, axis: choice.axis, log: choice.log, figure: name, scale, amount: amountOf(name), programs: groups.flatMap(({ programs }) => programs), own: groups.length <= 3 };
  });
}

function chart(name, shown, groups, views, answer, choice, words, charts, on) {
  const model = modelOf(name, groups, answer, choice, charts);
  const word = words.get(name);
  return html`<figure class="chart">
    <figcaption><strong>${word}</strong> <span class="readout" hidden></span>
      ${shown.length > 1 ? html`<button class="small" aria-label="Remove ${word}" @click=${() => on.choose({ series: shown.filter((each) => each !== name) })}>✕</button>` : nothing}
      ${answer && !model.data[0].length ? html`<span class="muted">not recorded in this time</span>` : nothing}</figcaption>
    ${plot(name, word)}
    <ul class="values">${groups.map((group) => value(group, model, views, choice))}</ul>
    ${choice.tables ? table(word, choice.axis, groups.map((group) => group.name), asTable(model.data, groups.map((group) => model.names.indexOf(group.name) + 1 || -1)), model.amount) : nothing}
  </figure>`;
}

function value({ name, ink, programs }, model, views, choice) {
  const place = model.names.indexOf(name);
  const last = model.amount(choice.zoom ? model.last.get(name) : meanNow(views.filter((view) => programs.includes(view.name)), model.figure, model.scale));
  return html`<li><span class="ink ${lineOf(ink).stroke} ${lineOf(ink).dash ? "dashed" : ""}" aria-hidden="true"></span>
    ${programs.length > 1 ? name : html`<a href=${link(choice, "program", programs[0])}>${name}</a>`}
    <output data-line=${place}></output><strong>${last}</strong></li>`;
}

// --- files -----------------------------------------------------------------------------------------------------------------

function save(name, blob) {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

const stamp = () => new Date().toISOString().slice(0, 16).replaceAll(":", "");
const saveCsv = (shown, charts) => save(`extralife-${stamp()}.csv`, new Blob([csvOf(shown.map((name) => charts.held(name)).filter(Boolean))], { type: "text/csv" }));

/** All charts below each other, with their titles and names of lines. */
function savePng(shown, groups, words, choice, charts) {
  const drawn = shown.map((name) => [name, charts.of(name)?.canvas]).filter(([, canvas]) => canvas);
  if (!drawn.length) return;
  const style = getComputedStyle(document.documentElement);
  const ink = (name) => style.getPropertyValue(`--${name}`).trim();
  const ratio = devicePixelRatio;
  const [head, line] = [24 * ratio, 18 * ratio];
  const width = Math.max(...drawn.map(([, canvas]) => canvas.width));
  const columns = Math.max(1, Math.floor(width / (220 * ratio)));
  const foot = Math.ceil(groups.length / columns) * line + line;
  const picture = Object.assign(document.createElement("canvas"), { width, height: drawn.reduce((sum, [, canvas]) => sum + canvas.height + head, foot) });
  const pen = picture.getContext("2d");
  pen.fillStyle = ink("card");
  pen.fillRect(0, 0, picture.width, picture.height);
  let y = 0;
  for (const [name, canvas] of drawn) {
    pen.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    pen.fillStyle = ink("text");
    pen.fillText(`${words.get(name)} over ${AXES[choice.axis].word}`, 8 * ratio, y + 17 * ratio);
    pen.drawImage(canvas, 0, y + head);
    y += canvas.height + head;
  }
  pen.font = `${12 * ratio}px system-ui, sans-serif`;
  groups.forEach((group, place) => {
    const [x, top] = [(place % columns) * (width / columns) + 8 * ratio, y + Math.floor(place / columns) * line];
    pen.fillStyle = ink(lineOf(group.ink).stroke);
    pen.fillRect(x, top + 6 * ratio, 14 * ratio, 3 * ratio);
    pen.fillStyle = ink("text");
    pen.fillText(group.name, x + 20 * ratio, top + 12 * ratio);
  });
  picture.toBlob((blob) => save(`extralife-${stamp()}.png`, blob));
}
