"""What is fuzzed: each reader of what others have written, with inputs for it and what has to hold.

A check returns when all is well: the reader gave a value or raised the one error that it declares. Anything else that it
raises is a finding, and so is more than a second of CPU. The readers of files are also held to not changing them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import socket
import struct
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fake_backend import FakeBackend, program
from fakes import FakeClock
from hypothesis import strategies as st
from malformed import HEADS, JSON_BODIES, XML_BODIES, request
from mutation import damaged, json_texts, json_values
from structlog.testing import capture_logs

from supervisor import config
from supervisor.adapters import tfrecord
from supervisor.adapters.copies import store as backups
from supervisor.adapters.figures import reading
from supervisor.adapters.host import boot
from supervisor.adapters.journal.sqlite import Journal, JournalReader, open_or_salvage
from supervisor.adapters.process import checkpoints, endings, notify_sockets, processes
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.probes import LocalProbes
from supervisor.api.listener import listen
from supervisor.api.server import Server
from supervisor.features.dialect import wire
from supervisor.model import codec, facts
from supervisor.model.settings import Paths, ProgramSpec, Progress
from supervisor.policy.script import figures
from workers import contract, daemon_side
from workers.contract import Beat, Control, ControlReader, Manifest, TargetKind, WorkerPhase
from workers.daemon_side import ControlWriter
from workers.exit_record import ExitRecord

ROOT = Path(__file__).resolve().parents[2]
TOKEN, BOOT = "ab" * 16, "cd" * 16


@dataclass(frozen=True)
class Target:
    name: str
    inputs: st.SearchStrategy[bytes]
    check: Callable[[bytes], None]
    examples: int  # in CI: together some 15 s


@cache
def place() -> Path:
    """A directory of this process, on tmpfs where there is one."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="xl-fuzz-", dir=base))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@contextlib.contextmanager
def untouched(path: Path, data: bytes) -> Any:
    """The file's bytes are the same afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    yield
    assert path.read_bytes() == data, "a reader wrote"


# --- beats and controls ----------------------------------------------------------------------------------------------------


def record(magic: bytes, body: bytes, sequence: int = 2, live_ns: int = 5) -> bytes:
    """A whole record: right sequence, right CRC."""
    header = struct.pack("<8sQQII", magic, sequence % 2**64, live_ns % 2**64, zlib.crc32(body), len(body))
    return (header + body).ljust(4096, b"\0")


_beat = Beat(
    WorkerPhase.TRAINING, 1, os.getpid(), BOOT, TOKEN, 5, 10**9, 10**9, 10**9, 0, 10, 40, 3, 2, 0, 100,
    TargetKind.ENV_STEPS, 1.5, 0.1,
)  # fmt: skip
BEAT_BODY = contract.pack_beat(_beat)
beats = (
    damaged([BEAT_BODY]).map(lambda body: record(b"XLBEAT01", body[:4056]))
    | st.binary(min_size=len(BEAT_BODY) - 54, max_size=len(BEAT_BODY) - 54).map(
        lambda rest: record(b"XLBEAT01", BEAT_BODY[:54] + rest)
    )
    | damaged([record(b"XLBEAT01", BEAT_BODY), record(b"XLBEAT01", BEAT_BODY, 3)])
)


@cache
def probes() -> tuple[LocalProbes, Paths]:
    paths = Paths(str(place() / "state"), str(place() / "run"))
    Path(paths.runtime_dir, "beats").mkdir(parents=True)
    Path(paths.runtime_dir, "shims").mkdir()
    clock = FakeClock(at_s=contract.now_ns() / 1e9)
    looking = LocalProbes(paths, clock, NotifySockets(paths.notify_socket, lambda: None))
    return looking, paths


def check_beat(data: bytes) -> None:
    looking, paths = probes()
    path = Path(paths.beat("Pong", 1))
    with untouched(path, data), capture_logs() as said:
        beat = daemon_side.read_beat(path)
        assert beat is None or isinstance(beat, Beat)
        looking.watch(ProgramSpec("Pong", ("x",), "d", progress=Progress.BEAT), 1, TOKEN, os.getpid())
        sample = looking.sample()["Pong"]
    assert not said, said
    json.dumps(asdict(sample), allow_nan=False)


CONTROL = place() / "valid.control"
_writer = ControlWriter(CONTROL)
_writer.write(Control(TOKEN, 1000, 2, 3, 4))
_writer.close()


def check_control(data: bytes) -> None:
    path = place() / "control"
    with untouched(path, data.ljust(4096, b"\0")):
        assert isinstance(ControlReader(path, TOKEN).read(), Control)


# --- edges -----------------------------------------------------------------------------------------------------------------

SAID = [
    b"READY=1\nSTATUS=training\n", b"WATCHDOG=1", b"X_EXTRALIFE_STEPS=500\nX_EXTRALIFE_CHECKPOINT=400\n", b"EXTEND_TIMEOUT_USEC=1000000",
    b"STOPPING=1", b"STATUS=a\nSTATUS=b", b"BARRIER=1",
]  # fmt: skip


def check_notify(data: bytes) -> None:
    heard = notify_sockets.NotifyState(TOKEN)
    for at_ns in (1, 2):
        said = notify_sockets.parse(data[:4096])
        assert len(said) <= 1 + data.count(b"\n"), "only a line end begins another assignment"
        heard = notify_sockets.updated(heard, said, at_ns)
    assert heard.status.isprintable()
    assert len(heard.status) <= 200
    assert all(value is None or 0 <= value < 2**70 for value in (heard.steps, heard.ckpt_step, heard.deadline_ns))


# --- JSON files ------------------------------------------------------------------------------------------------------------

MANIFEST = Manifest("Pong", TOKEN, 1, BOOT, 500, 1e9, {"game": "Pong", "shape": [1, 2]}, {"state.json": (5, "ab" * 32)}, 1.5)


def sealed(body: Any) -> bytes:
    """With the right digest of its own, so that what is inside is looked at."""
    if isinstance(body, dict):
        body = {key: value for key, value in body.items() if key != "self_digest"}
        with contextlib.suppress(ValueError):
            body["self_digest"] = contract._digest_of(body)
    return json.dumps(body).encode()


def check_manifest(data: bytes) -> None:
    try:
        manifest = Manifest.from_json(data)
    except ValueError:
        manifest = None
    assert manifest is None or Manifest.from_json(manifest.to_json()) == manifest
    for name in () if manifest is None else manifest.files:
        assert os.path.normpath(f"/below/{name}") == f"/below/{name}", "it leads elsewhere"
    run_dir = place() / "programs" / "Pong"
    with untouched(run_dir / "checkpoints" / f"ckpt-500.{TOKEN}" / "manifest.json", data):
        (info,) = checkpoints.survey(run_dir)
        checkpoints.verify(info)
        time.localtime(info.created_wall_s)


BACKUP: dict[str, Any] = {
    "version": 1, "label": "x", "cause": "operator", "created_wall_s": 1e9, "method": "link", "missed": {"Qbert": "no"},
    "programs": {"Pong": {"checkpoints": [[f"ckpt-500.{TOKEN}", 500, 9]], "results": [5, "ab"]}},
}  # fmt: skip
ODD_BACKUPS = [
    BACKUP | {"programs": {name: BACKUP["programs"]["Pong"]}} for name in ("../x", "/x", "a/b", "\0", "\ud800", ".", "")
]


def check_backup(data: bytes) -> None:
    root = place() / "backups"
    with untouched(root / "b1" / "backup.json", data):
        (info,) = backups.survey(root)
        for saved in info.programs:
            for name in (saved.program, *(each[0] for each in saved.checkpoints)):
                assert os.path.normpath(f"/below/{name}") == f"/below/{name}", "it leads elsewhere"
                assert "/" not in name
        backups.verify(info)


EXIT = asdict(ExitRecord(TOKEN, 5, 1, None, False, 1, 1e9, 0.1, 0.1, 1000, ("sleep(1234)",)))


def check_exit(data: bytes) -> None:
    try:
        ended = ExitRecord.from_json(data)
    except ValueError:
        return
    json.dumps(asdict(ended), allow_nan=False)
    ended_fact = facts.Exited(
        "x", "Pong", TOKEN, "crash", counted=True, code=ended.code, signal=ended.signal, steps=None,
        checkpoint_step=None, leftovers=ended.leftovers,
    )  # fmt: skip
    assert codec.decode(*codec.encode(ended_fact)) == ended_fact


REPORTS = [
    {"kind": "resumed", "at_ns": 5, "step": 100},
    {"kind": "checkpoint_bad", "path": "/x", "error": "torn"},
    {"kind": "odd", "x": 1},
]


def check_reports(data: bytes) -> None:
    path = place() / "reports.jsonl"
    with untouched(path, data):
        found = endings.read_reports(str(path))
    assert len(found) <= 1000
    for report in found:
        assert isinstance(report.kind, str)
        json.dumps(report.fields, allow_nan=False)


ATTEMPT = asdict(processes.RunningAttempt(BOOT, "Pong", 1, TOKEN, 5, 6, 7, 8, 9, 10))


def check_shim_record(data: bytes) -> None:
    path = place() / "shim.json"
    with untouched(path, data):
        found = processes.read_record(str(path))
    assert found is None or [*map(type, asdict(found).values())] == [*map(type, ATTEMPT.values())], "all or nothing"


MARK = boot.AliveMark(BOOT, 5, 1.0, 2.0, 3.0, "light", {"Pong": 5})


def check_mark(data: bytes) -> None:
    path = place() / "alive"
    with untouched(path, data):
        assert isinstance(boot.read_mark(path), boot.AliveMark | None)


# --- journal ---------------------------------------------------------------------------------------------------------------

FACTS: list[facts.Fact] = [
    facts.Wanted("asked", "Pong", run=True, by="root"),
    facts.Exited(
        "x", "Pong", TOKEN, "crash", counted=True, code=1, signal=None, steps=5, checkpoint_step=None, last_lines=("a",)
    ),
    facts.OperatorAsked("asked", "stop", ("Pong",), 0),
    facts.HostRebooted("x", BOOT, TOKEN, "unclean", "gone", 1.0, None, "light", ("Pong",), {"Pong": 5}),
]
ROWS = [codec.encode(fact) for fact in FACTS]


def row(kind: str, version: int, body: bytes) -> bytes:
    return f"{kind} {version}\n".encode() + body


rows = st.sampled_from(ROWS).flatmap(
    lambda known: json_texts([json.loads(known[2])]).map(lambda body: row(known[0], known[1], body))
)


def check_codec(data: bytes) -> None:
    head, _, body = data.partition(b"\n")
    kind, _, version = head.decode("utf-8", "replace").partition(" ")
    number = int(version) if re.fullmatch("[0-9]{1,9}", version) else 1
    try:
        fact = codec.decode(kind, number, body.decode("utf-8", "replace"))
    except (codec.UnknownFact, codec.MalformedFact):
        return
    assert codec.decode(*codec.encode(fact)) == fact


@cache
def journal_bytes() -> bytes:
    path = place() / "valid.sqlite"
    journal = Journal(path)
    for number in range(20):
        journal.append(FACTS, at_s=float(number), wall_s=1e9 + number, boot_id=BOOT)
    journal.close()
    return path.read_bytes()


def check_journal(data: bytes) -> None:
    path = place() / "journal.sqlite"
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    with untouched(path, data), contextlib.suppress(OSError), JournalReader(path) as reader:
        for stamped in reader.read():
            assert isinstance(stamped.fact, facts.Fact)
    # What a daemon makes of it when it starts.
    scratch = place() / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    (scratch / "journal.sqlite").write_bytes(data)
    with contextlib.suppress(OSError):
        journal, found, _ = open_or_salvage(scratch / "journal.sqlite", wall_s=1e9)
        journal.close()
        assert all(isinstance(stamped.fact, facts.Fact) for stamped in found)


# --- configuration ---------------------------------------------------------------------------------------------------------

CONFIGS = [path.read_bytes() for path in sorted((ROOT / "deploy" / "examples").glob("*.toml"))] + [
    b'[daemon]\nlog_backups = 2\n[program.mine]\ncommand = ["sleep", "5"]\nenv = { A = "b" }\nprogress = "log"\n',
    b"[level]\nslots = 2\n[program.Pong]\nbatch_size = 64\nlr = 1e-4\n",
]


def check_config(data: bytes) -> None:
    path = place() / "extralife.toml"
    environ = {"HOME": str(place()), "EXTRALIFE_STATE_DIR": str(place() / "s"), "EXTRALIFE_RUNTIME_DIR": "/dev/shm/xl-fuzz"}
    with untouched(path, data):
        try:
            loaded = config.load(str(path), environ)
        except config.ConfigError as error:
            sentences = error.errors
        else:
            sentences = None
    if sentences is not None:
        assert sentences
        assert all(sentence.isprintable() for sentence in sentences)
        return
    for spec in loaded.settings.programs:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", spec.name)
        assert spec.argv
    json.dumps([value for _, value, _ in config.explain(loaded)])


# --- HTTP, JSON and XML-RPC ------------------------------------------------------------------------------------------------

STATUS = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
ASK: dict[str, Any] = {"verb": "stop", "names": ["Pong"], "timeout_s": 5.0, "wait": False}
REQUESTS = [
    STATUS, STATUS * 3, b"GET /api/v1/facts?after=0&limit=10&program=Pong HTTP/1.1\r\nHost: localhost\r\n\r\n", request(b"/api/v1/ask", json.dumps(ASK).encode()),
    b"GET /api/v1/logs/Pong/stdout?offset=0&limit=5 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", *(head for head in HEADS if len(head) < 5000),
]  # fmt: skip


def call(name: str, *params: str) -> bytes:
    inside = "".join(f"<param><value>{value}</value></param>" for value in params)
    return f"<?xml version='1.0'?><methodCall><methodName>{name}</methodName><params>{inside}</params></methodCall>".encode()


CALLS = [
    call("supervisor.getAllProcessInfo"), call("supervisor.stopProcess", "<string>Pong</string>", "<boolean>0</boolean>"),
    call("supervisor.tailProcessStdoutLog", "<string>Pong</string>", "<int>0</int>", "<int>100</int>"),
    call("system.multicall", "<array><data><value><struct><member><name>methodName</name><value>system.listMethods</value></member>"
         "<member><name>params</name><value><array><data/></array></value></member></struct></value></data></array>"),
    call("supervisor.getProcessInfo", "<base64>UG9uZw==</base64>"), call("x", "<double>1e5</double>", "<dateTime.iso8601>20260101T00:00:00</dateTime.iso8601>"),
    call("x", "<nil/>", "<i8>5</i8>"), *XML_BODIES,
]  # fmt: skip
http = (
    damaged(REQUESTS)
    | json_texts([ASK, {"names": ["Pong"], "dry_run": True}]).map(lambda body: request(b"/api/v1/ask", body))
    | st.sampled_from(JSON_BODIES).map(lambda body: request(b"/api/v1/update", body))
    | damaged(CALLS).map(lambda body: request(b"/RPC2", body, b"Content-Type: text/xml\r\n"))
)


@cache
def server() -> tuple[str, list[dict[str, Any]], int]:
    """A real server over a backend that does nothing real, what it logs, and how many threads there were before it."""
    import structlog

    said: list[dict[str, Any]] = []

    def keep(_logger: object, name: str, event: Any) -> Any:
        said.append({**event, "level": name})
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    before = threading.active_count()
    backend = FakeBackend()
    backend.add(program("Pong"), program("Breakout", "QUEUED", attempt=0))
    path = str(place() / "s.sock")
    serving = Server(backend, listen(path), lambda: 1000.0)
    serving.start()
    atexit.register(serving.stop)
    return path, said, before


def check_http(data: bytes) -> None:
    path, said, before = server()
    got = b""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        sock.settimeout(60)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                got += piece
    for code in re.findall(rb"^HTTP/1.1 (\d+)", got, re.MULTILINE):
        assert 200 <= int(code) < 500, got[:300]
    bugs = [entry for entry in said if entry["event"] not in {"uvicorn", "request_failed_unheard"}]
    said.clear()
    assert not bugs, bugs
    assert threading.active_count() < before + 100


def check_rpc(data: bytes) -> None:
    try:
        name, params = wire.parse(data[: 64 * 1024])
    except wire.Malformed:
        return
    assert 0 < len(name) <= 200
    assert isinstance(params, tuple)


# --- what scripts write ----------------------------------------------------------------------------------------------------

SAID_BY_SCRIPTS = [
    b"global_step=4, episodic_return=[21.]\nglobal_step=8, episodic_return=[nan]\n", b"10/500 [00:01\r20/500 [00:02\r{'loss': 1e999}\n",
    b'{"step": 3, "train": {"loss": NaN}}\n{"step": -1, "loss": 1.5, "x": {"y": {"z": {}}}}\n', b'{"step": 1e400}\n[[[[{"step": {}}\n',
]  # fmt: skip
PATTERNS = (
    r"global_step=(?P<step>\S+), episodic_return=(?P<episode_return>\S+)",
    r"(?P<step>\d+)/(?P<total>\d+) \[",
    "'loss': (?P<loss>[^,}]+)",
)


def record_of(message: bytes) -> bytes:
    """Of an event file, with its checksums."""
    length = struct.pack("<Q", len(message))
    sums = (struct.pack("<I", tfrecord.masked_crc(part)) for part in (length, message))
    return length + next(sums) + message + next(sums)


_scalar = b"\x0a\x0atrain/loss\x15" + struct.pack("<f", 0.5)
_tensor = b"\x0a\x01x\x42\x08\x08\x01\x22\x04" + struct.pack("<f", 0.5)
_messages = [
    b"\x09"
    + struct.pack("<d", 1.7e9)
    + b"\x10\x2a"
    + b"\x2a"
    + bytes([len(value) + 2])
    + b"\x0a"
    + bytes([len(value)])
    + value
    for value in (_scalar, _tensor)
]
event_files = damaged([b"".join(map(record_of, _messages))]) | damaged(_messages).map(record_of)


def check_written(data: bytes) -> None:
    """The same bytes as a log, as JSON lines and as an event file; all at once, then the first half and the rest."""
    whole, halves = (
        [part for part in parts if part] for parts in ([data], [data[: len(data) // 2], data[len(data) // 2 :]])
    )
    for parts in (whole, halves):
        known, cursors = figures.Figures(), {}
        path = place() / "written" / "file"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
        asked = {
            "logs": [str(path)], "regex": list(PATTERNS), "off": [], "begin": {}, "globs": {"json": "f*", "events": "fi*"},
            "names": {"lr": "x"}, "base": str(path.parent), "since_wall_s": 0.0, "search": True, "first": False, "files": {},
            "opened": [], "name": "mine", "user": "", "places": [], "contested": False, "trees": {}, "watch": False, "claims": {},
        }  # fmt: skip
        for part in parts:
            with path.open("ab") as file:
                file.write(part)
            answer = json.loads(reading.as_json(reading.read_once({**asked, "cursors": cursors})))
            cursors = answer["cursors"]
            rows = [
                figures.FigureRow(rank, 1.0, {k: float(v) for k, v in found.items()}) for rank, _, _, found in answer["rows"]
            ]
            known = figures.after(known, rows)
        json.dumps(asdict(known), allow_nan=False)


TARGETS = {
    target.name: target
    for target in (
        Target("http", http, check_http, 150),
        Target("rpc", damaged(CALLS), check_rpc, 300),
        Target("beat", beats, check_beat, 200),
        Target("control", damaged([CONTROL.read_bytes()[:80]]), check_control, 100),
        Target("notify", damaged(SAID), check_notify, 300),
        Target(
            "manifest",
            json_values([json.loads(MANIFEST.to_json())]).map(sealed) | damaged([MANIFEST.to_json().encode()]),
            check_manifest,
            200,
        ),
        Target("backup", json_values([BACKUP, *ODD_BACKUPS]).map(sealed) | damaged([sealed(BACKUP)]), check_backup, 200),
        Target("exit", json_texts([EXIT, EXIT | {"code": None, "signal": 9}]), check_exit, 200),
        Target("reports", st.lists(json_texts(REPORTS), max_size=4).map(b"\n".join), check_reports, 150),
        Target("shim", json_texts([ATTEMPT]), check_shim_record, 100),
        Target(
            "mark",
            damaged([boot.pack_mark(MARK, 5).ljust(16384, b"\0") + boot.pack_mark(replace(MARK, level="x"), 6)]),
            check_mark,
            100,
        ),
        Target(
            "codec", rows | damaged([row(kind, version, body.encode()) for kind, version, body in ROWS]), check_codec, 300
        ),
        Target("journal", st.deferred(lambda: damaged([journal_bytes()])), check_journal, 80),
        Target("written", damaged(SAID_BY_SCRIPTS) | event_files, check_written, 150),
        Target("config", damaged(CONFIGS), check_config, 100),
    )
}
