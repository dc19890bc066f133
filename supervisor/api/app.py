"""The JSON API: routes and input checks, nothing else. It answers from the newest published snapshot.

Every answer is JSON (logs are bytes); every refusal is {"error": "one sentence"}. A broken request gets an error answer,
and never harms the daemon. Calls that may block run in threads. Reads and operators' requests have separate threads, so
that ten waiting `stop`s do not delay `status`.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from supervisor import discovery
from supervisor.adapters import threads
from supervisor.api import logfiles, starting
from supervisor.api.added import Handler, Post, Serving
from supervisor.api.door import PasswordCheck
from supervisor.api.encoding import EncodedPages, answer, encoded
from supervisor.api.inputs import MOST_PIN_S, RequestRefused, body_of, is_span, signal_name
from supervisor.api.peer import caller
from supervisor.api.port import ASK_WAIT_S, Backend, Json, Result, StatusPage
from supervisor.api.rest import read_body_first
from supervisor.api.same_site import same_site
from supervisor.api.stream import Stream
from supervisor.formats import span
from supervisor.model.codes import BAD_NAME, BAD_SIGNAL, CANT_REREAD, SUCCESS
from supervisor.model.inputs import Verb
from supervisor.model.names import expand, plain
from supervisor.reports.pages import BadQuery, pages
from supervisor.reports.status_view import troubles

log = structlog.get_logger()

MOST_WAIT_S: Final = 3600.0
MOST_ASKS: Final = 64  # at once, waiting ones included; each comes from a person or a script
STALE_S: Final = 30.0  # the loop turns at least every 5 s
MOST_TEXT: Final = 100  # characters of a label
_READERS: Final = 4
_SHORT_S: Final = 12.5 * 3600.0  # pages of windows of up to 12 hours wait for nothing
_LONG_S: Final = 2 * 86_400.0  # pages of longer windows are made one at a time, so that they keep no short one waiting
_MOST_LONG: Final = 8  # of them, waiting ones included
_COSTLY_S: Final = 0.25  # of CPU: the answer of such a page of a long window is given again for ...
_SHARE: Final = 0.02  # ... so long that making it takes this part of a core ...
_OLDEST_S: Final = 300.0  # ... but no longer than this
_LONG: Final = "check"  # this query reads every byte of a backup, so it must not use one of the few reader threads
_ASKERS: Final = 16

# Those with routes of their own.
_OWN_ROUTES: Final = (Verb.BACKUP, Verb.ROLLBACK, Verb.OFFSITE, Verb.PIN, Verb.UNPIN, Verb.WHEN_DONE)
_VERBS: Final = {verb.value: verb for verb in Verb if verb not in _OWN_ROUTES}

# For clients that accept it. Level 4 makes a sixth of a page of curves, in a third of the time of level 9. In the stream an
# event repeats the names of the event before: it becomes a fifth. Neither answers with a secret, and no other site may read
# or cause an answer (`same_site.py`), so its length gives nothing away. Logs follow a writer: they stay as they are.
_GZIP: Final = [Middleware(GZipMiddleware, minimum_size=1024, compresslevel=4)]
_GZIP_STREAM: Final = [Middleware(GZipMiddleware, compresslevel=4, exclude_content_types=())]


_WORDS: Final = (
    "", lambda value: isinstance(value, str) and len(value) <= MOST_TEXT and value.isprintable(),
    f"a text of up to {MOST_TEXT} printable characters",
)  # fmt: skip
_SPAN: Final = f"a number of seconds, more than 0 and at most {MOST_PIN_S:.0f}"
# The keys of bodies: the value of a missing key, whether a value is right, and its form.
_KEYS: Final[dict[str, tuple[Any, Callable[[Any], bool], str]]] = {
    "verb": ("", lambda value: str(value) in _VERBS, f"one of {', '.join(_VERBS)}"),
    "names": (
        [],
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "a list of program names",
    ),
    "timeout_s": (ASK_WAIT_S, lambda value: is_span(value, MOST_WAIT_S), f"a number of seconds up to {MOST_WAIT_S:.0f}"),
    **dict.fromkeys(("label", "backup", "do"), _WORDS),
    "wait": (True, lambda value: isinstance(value, bool), "true or false"),
    **dict.fromkeys(("dry_run", "unpin"), (False, lambda value: isinstance(value, bool), "true or false")),
    "pin": (None, lambda value: value is None or isinstance(value, str), "the name of a level"),
}


class Api:
    """The routes of one backend. `now_s` reads journal time, which never steps: the age of the newest snapshot."""

    def __init__(self, backend: Backend, now_s: Callable[[], float]) -> None:
        self._backend, self._now_s = backend, now_s
        self._read = _Threads(_READERS, "api-read")
        self._read_short = _Threads(1, "api-short")
        self._read_long = _Threads(1, "api-long", _MOST_LONG, "pages of long windows are being made")
        self._wait = _Threads(_ASKERS, "api-ask", MOST_ASKS, "requests are waiting")
        self._stream, self._encoded_pages = Stream(backend), EncodedPages()
        serving = Serving(backend, self._read, self._wait, self._encoded_pages)
        self._added = [each.routes(serving) for each in discovery.modules("routes")]
        self._making: dict[tuple[object, ...], asyncio.Future[bytes]] = {}
        self._costly: dict[tuple[str, str], tuple[float, bytes]] = {}  # (until when it is given again, answer)

    def end(self) -> None:
        """The server stops: followers of logs and of the stream are disconnected."""
        for each in self._added:
            each.end()
        self._stream.end()

    def close(self) -> None:
        """Shut the threads down without waiting. A thread that still waits for a reply ends when the reply comes."""
        for each in (self._read, self._read_short, self._read_long, self._wait):
            each.pool.shutdown(wait=False, cancel_futures=True)

    def app(self, host_names: Iterable[str], passwords: PasswordCheck) -> ASGIApp:
        get: list[tuple[str, Handler]] = [
            ("/healthz", self.healthz),
            ("/api/v1/programs/{name}", self.program),
            ("/api/v1/logs/{name}/{channel}", self.program_log),
            ("/api/v1/mainlog", self.main_log),
        ]
        post: list[tuple[str, Handler]] = [
            ("/api/v1/ask", self.ask), ("/api/v1/reread", self.reread), ("/api/v1/update", self.update),
            ("/api/v1/remove", self.remove), ("/api/v1/stdin", self.send_stdin), ("/api/v1/level", self.pin),
        ]  # fmt: skip
        for each in self._added:
            get += each.get.items()
            post += each.post.items()
        routes = [Route(path, _guarded(handler), methods=["GET"]) for path, handler in get]
        of_pages = {f"/api/v1/{name}": _guarded(self._page(name)) for name in pages()}
        routes += [Route(path, handler, methods=["GET"], middleware=_GZIP) for path, handler in of_pages.items()]
        routes += [Route("/api/v1/stream", _guarded(self._stream.answer), methods=["GET"], middleware=_GZIP_STREAM)]
        post += [(f"/api/v1/{name}", self._post(each)) for name, each in discovery.entries("posts", "POSTS")]
        post += [(f"/api/v1/{name}", self._act(act)) for name, act in self._backend.acts.items()]
        routes += [Route(path, _guarded(handler), methods=["POST"]) for path, handler in post]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
        return read_body_first(passwords.wrap(same_site(app, host_names)))

    # --- reading -----------------------------------------------------------------------------------------------------

    async def healthz(self, _: Request) -> Response:
        """503 if the deciding loop has not run for `STALE_S`, or while something that it depends on is in trouble."""
        snapshot = StatusPage(self._backend)
        age_s = self._now_s() - snapshot.now_s
        if age_s > STALE_S:
            return answer({"error": f"the deciding loop has not run for {span(age_s)}", "age_s": age_s}, 503)
        logs = {view[f"{channel}_log"] for view in snapshot.programs for channel in ("stdout", "stderr")}
        standing = [each for each in snapshot.daemon["foundations"] if each["path"] not in logs]  # its worker trains on
        wrong = troubles({**snapshot.daemon, "foundations": standing})
        health = {
            "ok": not wrong, "state": snapshot.daemon["state"], "age_s": age_s, "worst_gap_s": snapshot.worst_gap_s,
            "config": snapshot.daemon["config"],
        }  # fmt: skip
        return answer({**health, "error": "; ".join(wrong), "troubles": wrong}, 503) if wrong else answer(health)

    async def program(self, request: Request) -> Response:
        return answer(self._view(request.path_params["name"]))

    def _view(self, name: str) -> Json:
        view = StatusPage(self._backend).program(plain(name))
        if view is None:
            raise RequestRefused(404, f"no such program: {name!r}")
        return view

    def _page(self, name: str) -> Handler:
        async def page(request: Request) -> Response:
            query = request.query_params
            if pages()[name].instant:
                made = self._backend.page(name, query)
                found = self._encoded_pages.of(name, made, lambda: encoded(made))
                return Response(found, media_type="application/json")
            fresh = request.headers.get("cache-control") == "no-cache"  # at a prompt; a dashboard asks every half a minute
            return Response(await self._shared(name, query, fresh=fresh), media_type="application/json")

        return page

    async def _shared(self, name: str, query: Mapping[str, str], *, fresh: bool = False) -> bytes:
        """A page, made in another thread. If it is being made already, and no fact has been recorded since, that one.

        An open dashboard asks for five pages every half a minute: of a year, that would be half of a core for ever.
        """
        until_s, kept = self._costly.get((name, str(query)), (0.0, b""))
        if self._now_s() < until_s and not fresh:
            return kept
        key = name, str(query), self._backend.newest_fact()
        making = self._making.get(key)
        if making is None:
            thread = self._thread(name, query)
            making = asyncio.ensure_future(thread(self._made, name, query, thread is self._read_long))
            self._making[key] = making
            making.add_done_callback(lambda _: self._making.pop(key))
        return await asyncio.shield(making)  # a client that leaves ends no other's answer

    def _thread(self, name: str, query: Mapping[str, str]) -> _Threads:
        """Short windows have one thread: several would only keep the interpreter from one that replaces a worker."""
        since = pages()[name].arguments(query).get("since")
        if _LONG in query or since is None:
            return self._wait if _LONG in query else self._read
        ago_s = inf if since.ago_s is None else since.ago_s
        return self._read_short if ago_s <= _SHORT_S else self._read_long if ago_s > _LONG_S else self._read

    def _made(self, name: str, query: Mapping[str, str], is_long: bool) -> bytes:
        began_s = time.thread_time()
        found = encoded(self._backend.page(name, query))
        took_s = time.thread_time() - began_s
        if is_long and took_s >= _COSTLY_S:
            newest = [*self._costly.items()][1 - _MOST_LONG :]
            self._costly = {**dict(newest), (name, str(query)): (self._now_s() + min(_OLDEST_S, took_s / _SHARE), found)}
        return found

    async def program_log(self, request: Request) -> Response:
        name, channel = request.path_params["name"], request.path_params["channel"]
        view = self._view(name)
        if channel not in {"stdout", "stderr"}:
            raise RequestRefused(404, f"no such channel: {channel!r}; there are stdout and stderr")
        return await self._log(request, view[f"{channel}_log"])

    async def main_log(self, request: Request) -> Response:
        return await self._log(request, StatusPage(self._backend).daemon["main_log"])

    async def _log(self, request: Request, path: str | None) -> Response:
        params = request.query_params
        try:
            if path is None:
                raise FileNotFoundError
            if "offset" in params:
                offset = _whole(request, "offset", 0, least=0, most=2**62)
                limit = _whole(request, "limit", logfiles.MOST_BYTES, least=1, most=logfiles.MOST_BYTES)
                chunk = await self._read(logfiles.read_from, path, params.get("file", ""), offset, limit)
            else:
                tail = _whole(request, "tail", logfiles.TAIL_BYTES, least=0, most=logfiles.MOST_BYTES)
                chunk = await self._read(logfiles.read_tail, path, tail)
        except FileNotFoundError:
            if "maybe" in params:  # a browser would write a 404 into its console
                return Response(status_code=204)
            raise RequestRefused(404, "no log file") from None
        except OSError as error:
            raise RequestRefused(500, f"cannot read the log: {error}") from None
        headers = {"x-file": chunk.file_id, "x-next-offset": str(chunk.next_offset), "x-note": chunk.note}
        return Response(chunk.data, 200, headers, "application/octet-stream")

    # --- changing ----------------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Response:
        """{"verb", "names", "signal", "wait", "timeout_s"} -> {"results": [{"name", "code", "text"}]}."""
        body = await _body(request, "verb", "names", "signal", "wait", "timeout_s")
        verb, names = _VERBS[body["verb"]], body["names"]
        snapshot = StatusPage(self._backend)
        known = [view["name"] for view in snapshot.programs]
        wanted = expand(names, snapshot.programs)
        bad = {name: (name, BAD_NAME, "no such process") for name in wanted if name not in known}
        signal = signal_name(body["signal"]) if verb is Verb.SIGNAL else ""
        if signal is None:
            return _results([(name, BAD_SIGNAL, "bad signal name") for name in wanted])
        good = [name for name in wanted if name not in bad]
        done: list[Result] = []
        if good or verb in {Verb.SHUTDOWN, Verb.RELOAD}:
            by, uid = caller(request.scope)
            done = await self._wait(self._backend.ask, verb, good, signal, by, uid, float(body["timeout_s"]))
            if verb in {Verb.SHUTDOWN, Verb.RELOAD} and done:  # for these verbs, no result means success
                raise RequestRefused(422 if done[0][1] == CANT_REREAD else 503, done[0][2])
            if verb in {Verb.START, Verb.RESTART} and body["wait"]:
                done = await starting.wait_for_starts(lambda: StatusPage(self._backend), starting.attempts(snapshot), done)
        results = bad | {result[0]: result for result in done}
        return _results([results[name] for name in wanted if name in results])

    def _post(self, post: Post) -> Handler:
        async def handler(request: Request) -> Response:
            body = await _body(request, *post.keys)
            text, for_s = post.read(body)
            more = () if for_s is None else (for_s,)
            programs = StatusPage(self._backend).programs
            known = [view["name"] for view in programs]
            names = body.get("names") or ()
            wanted = [] if "all" in names else expand(names, programs)
            for name in wanted:
                if name not in known:
                    raise RequestRefused(404, f"no such program: {name!r}")
            by, uid = caller(request.scope)
            return _result(await self._wait(self._backend.request, post.verb, text, wanted, by, uid, ASK_WAIT_S, *more))

        return handler

    async def reread(self, request: Request) -> Response:
        await _body(request)
        return _changes(await self._wait(self._backend.reread))

    async def update(self, request: Request) -> Response:
        """{"names", "dry_run"}; no names or `all`: all changes."""
        body = await _body(request, "names", "dry_run")
        names = [plain(name) for name in body["names"]]
        by, uid = caller(request.scope)
        chosen, dry_run = [] if "all" in names else names, body["dry_run"]
        return _changes(await self._wait(lambda: self._backend.update(chosen, dry_run=dry_run, by=by, uid=uid)))

    async def remove(self, request: Request) -> Response:
        """{"name"} -> {"name", "code", "text"}: the program is stopped, and not supervised until the next update."""
        name = (await _body(request, "name"))["name"]
        if not isinstance(name, str):
            raise RequestRefused(400, "name must be the name of a program")
        by, uid = caller(request.scope)
        return _result(await self._wait(self._backend.remove, self._view(name)["name"], by, uid), bad=409)

    async def send_stdin(self, request: Request) -> Response:
        """{"name", "text"} -> {"name", "code", "text"}: write to the program's standard input; 409 if that is impossible."""
        body = await _body(request, "name", "text")
        name, text = body["name"], body["text"]
        if not isinstance(name, str) or not isinstance(text, str):
            raise RequestRefused(400, "name must be the name of a program, and text a string")
        data = text.encode("utf-8", "surrogatepass")
        return _result(await self._wait(self._backend.send_stdin, plain(name), data), bad=409)

    async def pin(self, request: Request) -> Response:
        """{"pin": level, "for_s"} or {"unpin": true} -> {"name", "code", "text"}; 409 if refused."""
        body = await _body(request, "unpin", "pin", "for_s")
        level, for_s = body["pin"], body["for_s"]
        if body["unpin"] != (level is None):
            raise RequestRefused(400, "give pin, a level's name, or unpin, true")
        if for_s is not None and not is_span(for_s):
            raise RequestRefused(400, f"for_s must be {_SPAN}")
        verb, names = (Verb.UNPIN, []) if level is None else (Verb.PIN, [level])
        for_s = None if for_s is None else float(for_s)
        return _result(
            await self._wait(self._backend.request, verb, "", names, *caller(request.scope), ASK_WAIT_S, for_s), bad=409
        )

    def _act(self, act: Callable[[], Json]) -> Handler:
        """A feature's own act: {} -> its answer."""

        async def acted(request: Request) -> Response:
            await _body(request)
            return answer(await self._wait(act))

        return acted


class _Threads:
    """Threads for calls that may block, and how many calls may be under way or wait at once."""

    def __init__(self, threads_: int, name: str, most: float = inf, what: str = "") -> None:
        self.pool, self._most, self._what, self._count = threads.begun(threads_, name), most, what, 0

    async def __call__(self, call: Callable[..., Any], *args: object) -> Any:
        if self._count >= self._most:
            raise RequestRefused(503, f"{self._most} {self._what} already: try again")
        self._count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, call, *args)
        finally:
            self._count -= 1


def _results(results: list[Result]) -> Response:
    return answer({"results": [{"name": name, "code": code, "text": text} for name, code, text in results]})


def _result(result: Result, *, bad: int = 200) -> Response:
    """One result; a failure has the status `bad`, an unknown name 404."""
    name, code, text = result
    if code != SUCCESS and bad != 200:
        raise RequestRefused(404 if code == BAD_NAME else bad, text)
    return answer({"name": name, "code": code, "text": text})


def _changes(changes: dict[str, Any]) -> Response:
    """The changes; 422 with every mistake if the configuration is invalid, because only the operator can correct it."""
    if changes.get("errors"):
        return answer({"error": "; ".join(map(str, changes["errors"])), "errors": changes["errors"]}, 422)
    return answer(changes)


# --- input -------------------------------------------------------------------------------------------------------------


def _guarded(handler: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestRefused as refused:
            return answer({"error": str(refused)}, refused.status)
        except BadQuery as bad:
            return answer({"error": str(bad)}, 422)
        except ClientDisconnect:
            return answer({"error": "the client has gone"}, 400)
        except (OSError, sqlite3.Error) as error:
            # The disk or the journal fails, not the code. `status` and the alerts report it, and it may pass soon.
            log.warning("api_request_refused", path=request.url.path, error=str(error))
            return answer({"error": f"this cannot be read now: {error}"}, 503)
        except Exception as error:
            log.exception("api_request_failed", path=request.url.path)
            return answer({"error": f"this request stopped at a bug ({type(error).__name__}); see the daemon's log"}, 500)

    return guarded


async def _no_route(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = {404: "no such page", 405: "this page does not take that method"}.get(status, str(error))
    return answer({"error": sentence}, status)


async def _body(request: Request, *keys: str) -> dict[str, Any]:
    """The values of these keys of the request's JSON object, which has no others. An empty body is an empty object."""
    data = await body_of(request)
    try:
        body = json.loads(data, object_pairs_hook=_without_duplicates, parse_constant=_no_number) if data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RequestRefused(400, "the body must be a JSON object")
    unknown = sorted(set(body) - set(keys))
    if unknown:
        raise RequestRefused(400, f"unknown key {unknown[0]!r}; there are: {', '.join(sorted(keys)) or 'none'}")
    found = {}
    for key in keys:
        default, is_right, form = _KEYS.get(key, (None, lambda _: True, ""))
        found[key] = body.get(key, default)
        if not is_right(found[key]):
            raise RequestRefused(400, f"{key} must be {form}")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is given twice: either value could be meant."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is given twice")
    return made


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _whole(request: Request, key: str, default: int, *, least: int, most: int) -> int:
    text = request.query_params.get(key)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise RequestRefused(400, f"{key} must be a whole number from {least} to {most}, not {text[:40]!r}")
    return value
