// The address of the page: which page is shown and all choices of the reader, so that a link shows the same picture.
//
//   #/                            the overview            #/program/Pong-s1?series=loss,entropy&log=yes
//   #/compare?pick=Pong-s1,Qbert  chosen curves            #/box

import { AXES } from "./curves.js";

export const WINDOWS = { "1h": [3600, "1 hour"], "12h": [43_200, "12 hours"], "24h": [86_400, "24 hours"], "7d": [604_800, "7 days"], "30d": [2_592_000, "30 days"], all: [null, "all"] };
export const RETURN = "mean_return";
export const SMOOTH = { 0: "none", 0.6: "0.6", 0.9: "0.9", 0.97: "0.97", 0.99: "0.99" };
const VIEWS = ["program", "compare", "box"];
const flag = (word) => word === "yes";
const list = (word) => (word ?? "").split(",").filter(Boolean);

/** {view, name, window, axis, series, zoom, pick, ...} of a hash; whatever it does not say has its usual value. */
export function read(hash) {
  const text = hash.replace(/^#/, "");
  const [path, query] = text.startsWith("/") ? [text.split("?")[0], text.slice(text.indexOf("?") + 1 || text.length)] : ["", text];
  const [, view, name = ""] = path.split("/");
  const given = new URLSearchParams(query);
  const zoom = list(given.get("zoom")).map(Number);
  return {
    view: VIEWS.includes(view) ? view : "home",
    name: decoded(name),
    window: Object.hasOwn(WINDOWS, given.get("window")) ? given.get("window") : "12h",
    axis: Object.hasOwn(AXES, given.get("axis")) ? given.get("axis") : "wall",
    series: list(given.get("series")).length ? list(given.get("series")) : [RETURN],
    zoom: zoom.length === 2 && zoom[0] < zoom[1] ? zoom : null,
    smooth: Object.hasOwn(SMOOTH, given.get("smooth")) ? Number(given.get("smooth")) : 0,
    pick: list(given.get("pick")),
    q: given.get("q") ?? "",
    only: given.get("only") ?? "",
    sort: given.get("sort") ?? "name",
    by: given.get("by") ?? "",
    ...Object.fromEntries(["human", "tables", "log", "mean", "seeds"].map((key) => [key, flag(given.get(key))])),
    page: 0,
  };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

const USUAL = read("");

/** The hash of a route: only what differs from the usual. */
export function write(route) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(route)) {
    if (["view", "name", "page"].includes(key) || String(value ?? "") === String(USUAL[key] ?? "")) continue;
    words.set(key, value === true ? "yes" : key === "zoom" ? value.map((each) => Number(each.toPrecision(12))).join() : String(value));
  }
  const path = route.view === "home" ? "" : route.view === "program" ? `program/${encodeURIComponent(route.name)}` : route.view;
  const query = words.toString().replaceAll("%2C", ",");
  return `#/${path}${query && `?${query}`}`;
}

/** The address of another page, with the same window and axis. */
export const link = ({ window, axis }, view, name = "", more = {}) => write({ ...USUAL, window, axis, view, name, ...more });
