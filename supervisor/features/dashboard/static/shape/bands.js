// Levels, trials, reboots, stalls and rollbacks as bands: {kind, from_s, to_s, label, why, seq} in wall time; to_s is null
// for a moment. They are made from the page `timeline`.

/** How each kind is shown: its word, its lane of the timeline, and whether it is drawn behind curves. */
export const KINDS = {
  level: { word: "level", lane: 0, behind: true },
  trial: { word: "trial of a heavier level", lane: 0, behind: true },
  reboot: { word: "reboot", lane: 1, behind: true },
  away: { word: "no daemon", lane: 1 },
  stall: { word: "stall, death", lane: 2 },
  rollback: { word: "rollback", lane: 3, behind: true },
  settings: { word: "change of settings", lane: 3, behind: true },
};
export const LANES = ["level", "box", "stalls, deaths", "changes"];
const MARKS = { stall: "stall", death: "stall", divergence: "stall", illness: "stall", slow: "stall", rollback: "rollback", settings: "settings" };

/** The bands of a timeline. Bands that are drawn behind others come first. */
export function bandsOf({ levels, box, marks, until_s, until_wall_s }) {
  const wall = (at_s) => at_s + until_wall_s - until_s; // as for curves: a step of the clock moves both alike
  return [
    ...levels.map(({ from_s, to_s, level, trial, why, seq }) => ({
      kind: trial ? "trial" : "level", from_s: wall(from_s), to_s: wall(to_s), label: trial ? `${level}, trial` : level, why, seq,
    })),
    ...box.map(({ from_s, to_s, kind, why, seq }) => ({
      kind: kind === "reboot" ? "reboot" : "away", from_s: wall(from_s), to_s: wall(to_s), label: kind, why, seq,
    })),
    ...marks.filter(({ kind }) => kind in MARKS).map(({ at_s, kind, what, program, why, seq, count }) => ({
      kind: MARKS[kind], from_s: wall(at_s), to_s: null, why, seq, program,
      label: `${program ? `${program}: ` : ""}${what}${count > 1 ? ` (${count} times)` : ""}`,
    })),
  ];
}

/** Bands that lie in a window at least in part, also those that began before it. */
export const within = (bands, from_s, to_s) => bands.filter((band) => (band.to_s ?? band.from_s) >= from_s && band.from_s <= to_s);

/** Bands that are drawn behind the curve of these programs: those of the box, and their own. `all`: their stalls and deaths too. */
export const behind = (bands, names, all = false) =>
  bands.filter(({ kind, program }) => (KINDS[kind].behind || (all && kind === "stall")) && (!program || names.includes(program)));

/** The bands that begin in a window, in time order: the positions of the timeline's cursor. */
export const events = (bands, from_s, to_s) =>
  bands.filter((band) => band.from_s >= from_s && band.from_s <= to_s).sort((one, other) => one.from_s - other.from_s);
