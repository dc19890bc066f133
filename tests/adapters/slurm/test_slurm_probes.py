"""Readings of jobs as wholes: from beats, logs, files, figures and witnesses; comments at their borders."""

import os
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_kit import NEXT, SPEC, TOKEN, World

from supervisor.adapters.figures.thread import FigureReading
from supervisor.features.slurm.adapters import node, report
from supervisor.features.slurm.adapters.probes import FRESH_S, SlurmEvidence, SlurmProbes
from supervisor.features.slurm.adapters.script import tag_of
from supervisor.model.inputs import EvidenceTaken, OwnCheckpoint, Report, Sample
from supervisor.model.settings import Progress
from supervisor.policy.script.figures import Figures
from workers import contract

S = 1_000_000_000  # a second of a node's clock


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def probes_of(world, spec=SPEC, begun=True, **more):
    made = SlurmProbes(world.paths, world.clock, lambda token: begun and token == TOKEN, **more)
    made.watch(spec, 3, TOKEN, 5)
    return made


def look(world, probes, later_s=2.0):
    world.clock.at_s += later_s
    return probes.sample().get("Pong")


def beat(world, at_ns, token=TOKEN, **fields):
    """A report with a beat, both of the node's clock."""
    made = contract.Beat(
        contract.WorkerPhase.TRAINING, 3, 5, "00" * 16, token, 6, **{"live_ns": 0, "progress_ns": 0, "phase_since_ns": 0, **fields}
    )  # fmt: skip
    path = world.report(at_ns=at_ns)
    record = contract._Record(
        f"{path}.made", contract._BEAT_MAGIC, contract.pack_beat(made)[: contract._FIXED.size], contract._MOVING.size
    )
    record.write(contract.pack_beat(made)[contract._FIXED.size :])
    record.close()
    node.write_in_place(path, Path(f"{path}.made").read_bytes() + path.read_bytes()[node.BEAT_BYTES :])


# --- when the files are read ---


def test_nothing_is_known_of_a_job_that_waits_and_little_of_one_that_has_just_begun(world):
    assert look(world, probes_of(world, begun=False)) is None
    assert look(world, probes_of(world)) == Sample(TOKEN)
    assert look(world, probes_of(world, suspended=lambda token: token == TOKEN)) == Sample(TOKEN, phase="suspended")


@pytest.mark.parametrize(("away_s", "state"), [(10.0, None), (10.1, "S")])
def test_time_beyond_ten_seconds_in_which_nobody_looked_is_excused(world, away_s, state):
    probes = probes_of(world, replace(SPEC, progress=Progress.NONE))
    world.report()
    look(world, probes)
    look(world, probes, 5.5)  # the report is so old
    assert look(world, probes, 0.9 + away_s).proc_state == state


def test_a_report_of_another_attempt_is_none(world):
    probes = probes_of(world)
    world.report(token=NEXT)
    assert look(world, probes) == Sample(TOKEN)


# --- beats ---


def test_a_beat_is_told_in_the_time_of_this_host(world):
    probes = probes_of(world)
    beat(
        world, 90 * S, progress_ns=87 * S, phase_since_ns=50 * S, phase_deadline_ns=120 * S, env_steps=7,
        ckpt_ns=contract.UNKNOWN,
    )  # fmt: skip
    found = look(world, probes)
    now_s = world.clock.at_s
    assert replace(found, figures={}) == Sample(
        TOKEN, "S", progress_at_s=now_s - 3.0, phase="training", phase_since_s=now_s - 40.0, phase_deadline_s=now_s + 30.0,
        ready=True, steps=7, episodes=0, frames=0, nan_count=0,
    )  # fmt: skip
    assert look(world, probes, 20.0).progress_at_s == found.progress_at_s + 19.1, "time without a look is excused"


def test_a_stamp_after_its_report_is_of_the_report_and_zero_is_none(world):
    probes = probes_of(world, replace(SPEC, progress=Progress.AUTO))
    beat(world, 90 * S, progress_ns=95 * S)
    found = look(world, probes)
    assert (found.progress_at_s, found.phase_since_s, found.phase_deadline_s) == (world.clock.at_s, None, None)
    assert found.source == "beat"


def test_a_beat_of_another_attempt_is_none(world):
    probes = probes_of(world)
    beat(world, 90 * S, token=NEXT, progress_ns=90 * S)
    assert look(world, probes) == Sample(TOKEN, "S")


def test_a_stale_report_makes_beats_lost(world):
    probes = probes_of(world)
    beat(world, 90 * S, progress_ns=87 * S)
    sample = look(world, probes)
    for _ in range(3):
        stale = look(world, probes, FRESH_S / 2)
    assert (stale.beat_lost, stale.proc_state, stale.progress_at_s) == (True, None, sample.progress_at_s)


def test_after_one_look_that_hung_jobs_are_read_again_at_once_and_none_is_stale(world, monkeypatch):
    """The file system hung for twelve minutes in the middle of a look. The nodes could not write in that time either."""
    probes = probes_of(world)
    beat(world, 90 * S, progress_ns=90 * S)
    look(world, probes)
    read = report.read

    def hangs(*args):
        world.clock.at_s += 720.0
        monkeypatch.setattr(report, "read", read)
        return read(*args)

    monkeypatch.setattr(report, "read", hangs)
    sample = look(world, probes)
    assert (sample.beat_lost, sample.progress_at_s) == (False, pytest.approx(world.clock.at_s, abs=5.0))
    beat(world, 815 * S, progress_ns=813 * S)
    assert look(world, probes, 6.0).progress_at_s == pytest.approx(world.clock.at_s - 2.0)


def test_a_node_that_stops_to_write_is_noticed_also_where_a_look_at_all_jobs_takes_long(world, monkeypatch):
    probes = probes_of(world)
    beat(world, 90 * S, progress_ns=90 * S)
    read = report.read

    def slow(*args):
        world.clock.at_s += 2.0
        return read(*args)

    monkeypatch.setattr(report, "read", slow)
    before = look(world, probes)
    for _ in range(60):
        sample = look(world, probes, 1.0)
    assert (sample.beat_lost, sample.progress_at_s) == (True, before.progress_at_s)


def test_a_suspended_job_is_told_and_its_stamps_do_not_age(world):
    """Two hours in which neither the worker nor its node's report could run; the clock of the node ran on."""
    suspended = [False]
    probes = probes_of(world, suspended=lambda _: suspended[0])
    beat(world, 90 * S, progress_ns=87 * S)
    before = look(world, probes)
    suspended[0] = True
    for _ in range(1440):
        sample = look(world, probes, 5.0)
        assert (sample.phase, sample.proc_state, sample.phase_deadline_s) == ("suspended", None, None)
        assert sample.phase_since_s == before.progress_at_s + 3.0
    suspended[0] = False
    sample = look(world, probes, 5.0)
    assert (sample.phase, sample.beat_lost) == ("training", False), "its node has its time to write again"
    assert world.clock.at_s - sample.progress_at_s < 4.0
    beat(world, 90 * S + 7208 * S, progress_ns=87 * S)
    sample = look(world, probes)
    aged_s = world.clock.at_s - sample.progress_at_s
    assert aged_s == pytest.approx(5.0, abs=3.0), "two hours of its age were the suspension's"


# --- programs without beats ---


def test_a_log_that_grows_is_progress_from_the_first_report_on(world):
    log = Path(world.paths.log("Pong", "stdout"))
    log.write_text("of before\n")
    probes = probes_of(world, replace(SPEC, progress=Progress.AUTO))
    log.write_text("of before\nx\n")
    assert look(world, probes) == Sample(TOKEN), "nothing is read before the first report"
    world.report(stdout_from=12)
    assert look(world, probes) == Sample(TOKEN, "S", source="log")
    log.write_text("of before\nx\ny\n")
    moved = look(world, probes)
    at_s = world.clock.at_s
    assert moved == Sample(TOKEN, "S", progress_at_s=at_s, phase="training", ready=True, source="log")
    assert look(world, probes) == moved
    fixed = probes_of(world, replace(SPEC, progress=Progress.LOG))
    assert look(world, fixed).source == "", "a source that was chosen is not told"


def test_a_line_before_the_first_report_is_progress_too(world):
    probes = probes_of(world, replace(SPEC, progress=Progress.LOG))
    Path(world.paths.log("Pong", "stderr")).write_text("a line\n")
    world.report()
    assert look(world, probes).progress_at_s == world.clock.at_s


@pytest.mark.parametrize("progress", [Progress.FILES, Progress.LOG])
def test_files_are_progress_and_logs_only_where_they_are_wanted(world, progress):
    out = Path(world.paths.run_dir("Pong"), "out")
    out.mkdir()
    probes = probes_of(world, replace(SPEC, progress=progress, progress_glob="out/*"))
    (out / "a").write_text("x")
    world.report()
    first = look(world, probes).progress_at_s
    assert (first is None) is (progress is Progress.FILES), "the files of before are the starting point"
    Path(world.paths.log("Pong", "stdout")).write_text("x")
    second = look(world, probes).progress_at_s
    assert (second is None) is (progress is Progress.FILES)
    (out / "b").write_text("x")
    assert look(world, probes).progress_at_s == world.clock.at_s


def test_work_is_seen_between_two_reports(world):
    probes = probes_of(world, replace(SPEC, progress=Progress.LOG))
    world.report(cpu_s=1.0, io_bytes=0)
    assert (look(world, probes).witness_at_s, look(world, probes).witness) == (None, "")
    world.report(cpu_s=1.0, io_bytes=0, at_ns=92 * S)
    assert look(world, probes).witness == ""
    world.report(cpu_s=1.5, io_bytes=0, at_ns=94 * S)
    found = look(world, probes)
    assert (found.witness, found.witness_at_s) == ("cpu", world.clock.at_s)
    world.report(cpu_s=1.5, io_bytes=1 << 20, at_ns=96 * S)
    newer = look(world, probes)
    assert (newer.witness, newer.witness_at_s) == ("io", found.witness_at_s + 2.0)
    world.report(cpu_s=1.5, io_bytes=1 << 20, at_ns=98 * S)
    assert look(world, probes) == newer


class FigureThread:
    """Figures as a test gives them, and what was asked for."""

    def __init__(self, reading=None):
        self.reading, self.calls = reading, []

    def watch(self, *given):
        self.calls.append(("watch", *given))

    def forget(self, *given):
        self.calls.append(("forget", *given))

    def newest(self, *given):
        self.calls.append(("newest", *given))
        return self.reading


def test_figures_are_read_from_the_moment_at_which_the_worker_began(world):
    spec, figures = replace(SPEC, progress=Progress.AUTO), FigureThread()
    probes = probes_of(world, spec, figures=figures)
    look(world, probes)
    assert figures.calls == []
    ticks = os.sysconf("SC_CLK_TCK")
    world.report(start_ticks=80 * ticks, stdout_from=3, stderr_from=4)
    look(world, probes)
    world.report(start_ticks=80 * ticks, at_ns=91 * S)
    look(world, probes)
    probes.forget("Pong", TOKEN)
    began_wall_s = 6000.0 - 10.0 - 1.0 / ticks
    newest = ("newest", "Pong", TOKEN)
    assert figures.calls == [
        ("watch", spec, TOKEN, pytest.approx(began_wall_s - 5.0, abs=0.1), (3, 4)), newest, newest, ("forget", "Pong", TOKEN),
    ]  # fmt: skip
    builtin = FigureThread()
    look(world, probes_of(world, replace(spec, builtin=True), figures=builtin))
    assert builtin.calls == [newest]


def test_steps_in_its_output_are_progress(world):
    figures = FigureThread(FigureReading(Figures(steps=70, first_steps=(10,), moved_at_s=900.0, moves=2), world.clock.at_s))
    probes = probes_of(world, replace(SPEC, progress=Progress.AUTO), figures=figures)
    world.report()
    told = Sample(
        TOKEN, "S", progress_at_s=900.0, phase="training", ready=True, source="figures", steps=70, first_steps=(10,)
    )  # fmt: skip
    assert look(world, probes) == told
    figures.reading = FigureReading(Figures(steps=70, moves=1), world.clock.at_s, "it is odd")
    found = look(world, probes)
    assert (found.source, found.progress_at_s, found.steps, found.unread) == ("log", None, 70, "it is odd")
    chosen = probes_of(world, replace(SPEC, progress=Progress.FIGURES), figures=FigureThread())
    assert look(world, chosen) == Sample(TOKEN, "S")


def test_its_own_checkpoints_are_told(world):
    own = OwnCheckpoint("/c", 7)
    probes = probes_of(world, own=lambda name, pids, _: own if (name, pids) == ("Pong", ()) else None)
    assert look(world, probes) == Sample(TOKEN)
    world.report()
    assert look(world, probes) == Sample(TOKEN, "S", own=own)


# --- reports of workers ---


def test_each_report_of_a_worker_is_told_once(world, monkeypatch):
    world.directory().mkdir(parents=True)
    path = world.directory() / contract.REPORTS_FILE
    path.write_text('{"kind": "resumed", "step": 40}\n')
    probes = probes_of(world)
    look(world, probes)
    assert probes.reports() == (), "its job has not begun"
    world.report()
    look(world, probes)
    first = ("Pong", TOKEN, Report("resumed", {"step": 40}))
    assert (probes.reports(), probes.reports()) == ((first,), ())
    with path.open("a") as out:
        out.write('{"kind": "a"}\n{"kind": "b"}\n')
    assert probes.reports() == (("Pong", TOKEN, Report("a", {})), ("Pong", TOKEN, Report("b", {})))
    monkeypatch.setattr("supervisor.features.slurm.adapters.probes._MOST_REPORTS_EVER", 3)
    with path.open("a") as out:
        out.write('{"kind": "c"}\n')
    assert probes.reports() == (), "as many as are read of one attempt"


def test_evidence_is_taken_in_a_thread_and_posted(world):
    posted = threading.Event()
    post = world.inbox.post
    world.inbox.post = lambda item: (post(item), posted.set())
    asked = []
    SlurmEvidence(world.paths, asked.append, world.inbox, world.clock).take("Pong", TOKEN)
    assert posted.wait(60.0)
    assert world.inbox.items == [EvidenceTaken(world.clock.now_s(), "Pong", TOKEN, {"process": "Pong is gone"})]
    assert asked == [TOKEN]


def test_evidence_has_the_lines_since_the_attempt_began(world):
    Path(world.paths.log("Pong", "stdout")).write_text("old\nnew\n")
    Path(world.paths.log("Pong", "stderr")).write_text("older\nnewer\n")
    world.report(stdout_from=4, stderr_from=6, wall_s=world.clock.wall_s() - 7.4)
    SlurmEvidence(world.paths, lambda _: 3, world.inbox, world.clock)._take("Pong", TOKEN)
    where = "job 17 on n7, pid 5, state S, reported 7.4s ago"
    assert world.inbox.items[-1].evidence == {"process": where, "stdout": "new\nnewer"}


# --- reports of nodes ---


@pytest.mark.parametrize(
    "field",
    ["token", "job", "restart", "node", "asked", "pid", "start_ticks", "shim_pid", "shim_start_ticks", "stdout_from", "stderr_from",
     "at_ns", "wall_s", "state", "cpu_s", "io_bytes"],
)  # fmt: skip
def test_a_report_with_a_value_of_another_kind_is_none(world, field):
    for wrong in (True, [], {}):
        path = world.report(**{field: wrong})
        assert report.of_file(str(path)) is None
    world.report()
    assert report.of_file(str(path)) is not None


def test_a_report_that_is_no_object_or_has_another_sum_is_none(world):
    path = world.report()
    whole = path.read_bytes()
    for text in (b"[]", b"5", b"[" * 5000, b"{"):
        path.write_bytes(whole[: node.BEAT_BYTES] + b"%08x " % zlib.crc32(text) + text + b"\n")
        assert report.of_file(str(path)) is None
    path.write_bytes(whole.replace(b'"n7"', b'"n8"'))
    assert report.of_file(str(path)) is None
    path.write_bytes(whole)
    assert report.of_file(str(path)).node == "n7"


# --- comments ---


@pytest.mark.parametrize(
    "comment",
    [f"extralife:{'ab' * 4}:P:1:{TOKEN[1:]}", f"extralife:{'AB' * 4}:P:1:{TOKEN}", f"extralife:{'ab' * 4}:P:x:{TOKEN}",
     f"extralife:{'ab' * 4}::1:{TOKEN}", f"Extralife:{'ab' * 4}:P:1:{TOKEN}"],
)  # fmt: skip
def test_what_is_almost_a_comment_is_none(comment):
    assert tag_of(comment) is None
