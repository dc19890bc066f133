// The page `curves` grows at its end: after the first answer only new points are requested, and joined to those before.

const keyOf = ({ program, gpu, worker_phase: phase }) => `${program ?? ""} ${gpu ?? ""} ${typeof phase === "string" ? phase : ""}`;

/**
 * An answer with the points of a later answer that begins at its `from_s`. null: the points before have changed, too, because
 * another attempt has begun, which may have taken back some of them, or because the resolution is another.
 */
export function grown(before, later) {
  if (before.period_s !== later.period_s) return null;
  const fresh = new Map(later.subjects.map((subject) => [keyOf(subject), subject]));
  const known = before.subjects.map((subject) => {
    const [first, end] = [later.since_s, later.from_s].map((at_s) => placeOf(subject.at_s, at_s));
    const more = fresh.get(keyOf(subject)) ?? part(subject, 0, 0);
    fresh.delete(keyOf(subject));
    if (more.attempt?.some((attempt) => attempt !== subject.attempt.at(-1))) return null;
    const joined = spliced(part(subject, first, end), more);
    return subject.from_files === undefined ? joined : { ...joined, from_files: Math.max(0, subject.from_files - first) };
  });
  if (known.includes(null)) return null;
  return { ...later, subjects: [...known.filter(({ at_s }) => at_s.length), ...fresh.values()] };
}

/** The number of points before a moment. */
const placeOf = (at_s, moment_s) => [...at_s, Infinity].findIndex((each) => each >= moment_s);

const isObject = (value) => value !== null && typeof value === "object";
const mapped = (value, change) => Object.fromEntries(Object.entries(value).map(([key, item]) => [key, change(item, key)]));

/** A subject with a part of its points: of every list in it. */
const part = (value, from, to) => (Array.isArray(value) ? value.slice(from, to) : isObject(value) ? mapped(value, (item) => part(item, from, to)) : value);

/** Two subjects as one: their lists behind each other. */
const spliced = (one, other) => (Array.isArray(one) ? [...one, ...other] : isObject(one) ? mapped(one, (item, key) => spliced(item, other[key])) : one);
