// Words and numbers for people. Unknown is a dash, never 0.

export const UNKNOWN = "–";
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** Untrusted text, as `supervisor/printable.py` prints it: ESC becomes the four characters \x1b, U+202E becomes \u202e. */
export function visible(text, { lines = false } = {}) {
  return String(text).replace(UNPRINTABLE, (char) => {
    if ("\n\t\r".includes(char)) return lines && char !== "\r" ? char : " ";
    const code = char.codePointAt(0);
    const hex = (digits) => code.toString(16).padStart(digits, "0");
    return code < 0x100 ? `\\x${hex(2)}` : code < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
  });
}

/** A JSON value in which every text is visible. Each answer of the server goes through here, once. */
export function cleaned(value) {
  if (typeof value === "string") return visible(value, { lines: true });
  if (Array.isArray(value)) return value.map(cleaned);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [visible(key), cleaned(item)]));
}

export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const when = (value, words) => (known(value) ? words(value) : UNKNOWN);

/** 980, 12.3 k, 41 M: at most three digits. */
export function count(value) {
  return when(value, (number) => {
    const size = Math.abs(number);
    for (const [unit, word] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= unit * 0.9995) return `${figures(number / unit)} ${word}`;
    }
    return figures(number);
  });
}

/** 1,234; 41.2; 4.12; 0.412. */
export function figures(value) {
  return when(value, (number) => {
    const size = Math.abs(number);
    const digits = size >= 99.95 || number === Math.round(number) ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
    return number.toLocaleString("en-US", { maximumFractionDigits: digits }).replace("-", "−");
  });
}

/** Labels of an axis, with as many digits as `step` needs to keep them apart: 0.0012, 0.0014; 10.2 k, 10.4 k. null: no steps. */
export function spaced(splits, step) {
  const size = Math.max(...splits.filter(known).map(Math.abs), 0);
  const [unit, word] = [[1e9, " G"], [1e6, " M"], [1e3, " k"]].find(([each]) => step && size >= each) ?? [1, ""];
  let digits = 0;
  while (step && digits < 12 && Math.abs((step / unit) * 10 ** digits - Math.round((step / unit) * 10 ** digits)) > 1e-6) digits += 1;
  const words = (value) => (value / unit).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return splits.map((value) => (!known(value) ? "" : !step ? significant(value) : value ? `${words(value)}${word}`.replace("-", "−") : "0"));
}

/** A label of a logarithmic axis: 0.0001, 0.2, 30, 4 k. */
const significant = (value) => (Math.abs(value) >= 1000 ? count(value) : String(Number(value.toPrecision(3))).replace("-", "−"));

/** 42s, 1m 5s, 3h 5m, 2d 4h: two units at most, as `supervisor/formats.py`. */
export function span(seconds) {
  return when(seconds, (time) => {
    const whole = Math.max(0, Math.round(time));
    for (const [unit, letter, below, smaller] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
      const rest = Math.floor((whole % unit) / below);
      if (whole >= unit) return `${Math.floor(whole / unit)}${letter}${rest ? ` ${rest}${smaller}` : ""}`;
    }
    return `${whole}s`;
  });
}

/** As `span`, but exact below ten seconds: 2.5s, 40ms, 0s, as `span` of `supervisor/formats.py`. */
export const exact = (seconds) => when(seconds, (time) => (
  time <= 0 || time >= 9.95 ? span(time) : time >= 0.9995 ? `${Number(time.toFixed(1))}s` : time >= 0.001 ? `${(1000 * time).toFixed(0)}ms` : "<1ms"));

/** The uncertainty of an end date, with 90 % confidence: ` ± 5h`; empty if it is unknown. */
export const around = ({ days_more: days }) => (known(days) ? ` ± ${span(days * 86400)}` : "");
export const ago = (seconds) => when(seconds, (time) => (time < 2 ? "now" : `${span(time)} ago`));

/** $41.20, $0.139, $0.05, <$0.001, as `supervisor/formats.py`. */
export const dollars = (value) => when(value, (usd) => {
  if (usd > 0 && usd < 0.001) return "<$0.001";
  if (usd > 0 && usd < 0.9995) return `$${usd.toFixed(3).replace(/0$/, "")}`;
  return `$${usd.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
});

export const percent = (share) => when(share, (part) => (
  part > 0 && part < 0.0005 ? "<0.1 %" : `${part > 0 && part < 0.01 ? (part * 100).toFixed(1) : Math.round(part * 100)} %`));

/** 27.8 GB, 0 B. */
export const bytes = (size) => when(size, (number) => `${count(number)}B`.replace(/(?<=\d)B/, " B"));

/** How values of a figure are shown: bytes with their unit. */
export const amountOf = (name) => (name.endsWith("_bytes") ? bytes : figures);
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
const two = (number) => String(number).padStart(2, "0");

/** 04:12, in the reader's own time zone. */
export const clock = (wall_s) => when(wall_s, (time) => [new Date(time * 1000)].map((date) => `${two(date.getHours())}:${two(date.getMinutes())}`)[0]);

export const clockSeconds = (wall_s) => when(wall_s, (time) => `${clock(time)}:${two(new Date(time * 1000).getSeconds())}`);
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
export const date = (wall_s) => when(wall_s, (time) => `${new Date(time * 1000).getDate()} ${MONTHS[new Date(time * 1000).getMonth()]}`);

/** A moment for people: 04:12 within 12 hours, Thursday 14:00 within six days, 12 Dec 14:00 past, 21 Dec future, Mar 2031. */
export function moment(wall_s, now_s) {
  return when(wall_s, (time) => {
    const far = Math.abs(time - now_s);
    const day = new Date(time * 1000);
    const same = day.toDateString() === new Date(now_s * 1000).toDateString();
    if (same || far < 12 * 3600) return clock(time);
    if (far < 6 * 86400) return `${DAYS[day.getDay()]} ${clock(time)}`;
    if (far >= 300 * 86400) return `${MONTHS[day.getMonth()]} ${day.getFullYear()}`;
    return time > now_s ? date(time) : `${date(time)} ${clock(time)}`;
  });
}

/** The first of many names: "a, b, c and 2 more". */
export const few = (names) => (names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", "));
