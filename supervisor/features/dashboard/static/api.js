// Requests to the server that the page came from. An answer is {data} or {error: one sentence, status}.

import { grown } from "./shape/growing.js";
import { cleaned } from "./text.js";

const PATIENCE_MS = 30_000;
const MOST_KEPT = 4; // answers of the page `curves`
const newest = new Map(); // by query: the newest answer, the latest last

/** A page of reports: `page("curves", {since: "43200s"})`. Of curves that were requested before, only new points are. */
export async function page(name, query = {}) {
  const words = new URLSearchParams(query).toString();
  const path = `/api/v1/${name}${words && `?${words}`}`;
  if (name !== "curves") return asked(path, {});
  const before = newest.get(words);
  const later = before && (await asked(`/api/v1/curves?${new URLSearchParams({ ...query, after: before.until_s })}`, {}));
  const data = later?.data && grown(before, later.data);
  const answer = data ? { data } : later?.error ? later : await asked(path, {});
  if (answer.status === 404) return { error: "Nothing is recorded: this installation has no recorder." };
  if (!answer.data) return answer;
  newest.delete(words);
  newest.set(words, answer.data);
  if (newest.size > MOST_KEPT) newest.delete(newest.keys().next().value);
  return answer;
}

/** A request that changes something. It waits as long as the daemon does. */
export function act(route, body) {
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return asked(`/api/v1/${route}`, request, 600_000);
}

/** A part of a log: its end, or what follows an earlier part. {data: bytes, next: {file, offset}}; {}: there is no file yet. */
export async function logPart(program, channel, query) {
  try {
    const response = await fetch(`/api/v1/logs/${encodeURIComponent(program)}/${channel}?${new URLSearchParams({ ...query, maybe: "" })}`, {
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (!response.ok) return await refusal(response);
    if (response.status === 204) return {};
    const next = { file: response.headers.get("x-file"), offset: response.headers.get("x-next-offset") };
    return { data: await response.arrayBuffer(), next };
  } catch (error) {
    return lost(error);
  }
}

async function asked(path, request, patience_ms = PATIENCE_MS) {
  try {
    const response = await fetch(path, { ...request, signal: AbortSignal.timeout(patience_ms) });
    return response.ok ? { data: cleaned(await response.json()) } : await refusal(response);
  } catch (error) {
    return lost(error);
  }
}

async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  return { status: response.status, error: cleaned(body.error ?? `the server answered ${response.status}`) };
}

function lost(error) {
  const late = error.name === "TimeoutError";
  return { status: 0, late, error: late ? "no answer in time; the request may still be carried out" : "extralife cannot be reached" };
}
