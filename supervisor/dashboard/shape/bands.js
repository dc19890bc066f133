// Levels, trials, reboots, stalls and rollbacks as bands: {kind, from_s, to_s, label} in wall time, to_s null for a moment.

/** How each kind is told: its word, its shape beside the word, and its lane of the timeline. */
export const KINDS = {
  level: { word: "level", lane: 0 },
  trial: { word: "trial of a heavier level", lane: 0 },
  reboot: { word: "reboot", lane: 1 },
  stall: { word: "stall or death", lane: 2 },
  rollback: { word: "rollback", lane: 3 },
};
export const LANES = ["level", "reboots", "stalls, deaths", "rollbacks"];

/** Bands that lie in a window at least in part, also those that began before it. */
export const within = (bands, from_s, to_s) => bands.filter((band) => (band.to_s ?? band.from_s) >= from_s && band.from_s <= to_s);
