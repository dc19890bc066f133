"""Any inputs in any order, as hypothesis likes them: nothing that the shell could ever say makes the core stumble.

The world in `world.py` is plausible; this one is not. Endings come twice, evidence of nobody, samples from the past, a
survey that contradicts the journal. `Core.give` checks after each what must always hold. `SIM_SEEDS=100` looks longer.
"""

import inspect
import os
from dataclasses import replace

from core_kit import Core, spec
from core_kit import settings as configured
from fakes import FakeSources
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.deciding.decide import _HANDLERS
from supervisor.features.alerts.messages import AlertTried, ReportDue
from supervisor.features.alerts.settings import AlertSettings
from supervisor.features.backups.messages import BackupChecked, BackupDue, BackupMade, BackupRestored
from supervisor.features.notices.messages import EndNotice, EndNoticesRead
from supervisor.features.notices.rules import END, RISK
from supervisor.features.offsite.messages import Claim, Lease, LeaseFound, OffsiteDone, OffsiteDue
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.features.slurm.messages import JobSight, JobsSeen
from supervisor.features.when_done.messages import WhenDoneEnded
from supervisor.features.when_done.settings import WhenDoneSettings
from supervisor.model.facts import JournalStalled
from supervisor.model.fold import fold_all
from supervisor.model.inputs import (
    Asked,
    Began,
    BootEvidence,
    CheckpointsFound,
    ClockMoved,
    ConfigFaulty,
    ConfigLoaded,
    Ended,
    Ending,
    EvidenceTaken,
    FoundationsLooked,
    OwnCheckpoint,
    Report,
    Sample,
    Sampled,
    SnapshotDue,
    SpawnBroke,
    SpawnSucceeded,
    SupervisionLooked,
    Survival,
    Survivor,
    Terminated,
    Verb,
    Woke,
)
from supervisor.model.lifecycle import HAS_PROCESS
from supervisor.model.memory import Memory, Trouble
from supervisor.policy.box.foundations import Finding, Look
from supervisor.policy.box.supervision import Failing
from supervisor.reports.status_view import status_view
from supervisor.reports.view import program_views

NAMES = ["A", "B", "C", "gone"]
names = st.sampled_from(NAMES)
steps = st.integers(0, 10**6)
maybe_time = st.none() | st.floats(-100.0, 5.0)
reports = st.builds(
    Report, st.sampled_from(["resumed", "from_scratch", "checkpoint_bad", "save_failed"]),
    st.fixed_dictionaries({}, optional={"step": steps | st.text(max_size=2), "at_ns": steps, "path": st.text(max_size=2)}),
)  # fmt: skip
endings = st.builds(
    Ending,
    code=st.none() | st.sampled_from([0, 1, 75, 77, 78, 255]), signal=st.none() | st.sampled_from([9, 11, 15, 99]),
    leftovers=st.sampled_from([(), ("7 sleep",)]), steps=st.none() | steps, ckpt_step=st.none() | steps,
    reports=st.lists(reports, max_size=2).map(tuple), fate=st.sampled_from(["", "it vanished"]),
)  # fmt: skip


findings = st.builds(
    Finding,
    st.sampled_from(["journal", "lock", "state directory"]), st.just("/a/path"), st.sampled_from(Look),
    restorable=st.booleans(), error=st.sampled_from(["", "disk full"]), restarts=st.booleans(), holds_starts=st.booleans(),
)  # fmt: skip

end_notices = st.builds(
    EndNotice, st.sampled_from(["aws end", "file end"]), st.sampled_from(["aws", "file"]), st.sampled_from([END, RISK]),
    st.just("an end"), st.none() | st.sampled_from([-200.0, -1.0, 20.0, 120.0, 3600.0]),
)  # fmt: skip
own_checkpoints = st.builds(
    OwnCheckpoint,
    path=st.sampled_from(["", "/w/a", "/w/b"]), step=st.none() | steps, saved_at_s=st.none() | st.floats(-10.0, 10_000.0),
    size_bytes=st.none() | steps, torn=st.sampled_from(["", "/w/c"]), sure=st.booleans(), note=st.sampled_from(["", "odd"]),
    interval_s=st.none() | st.floats(0.1, 1e4), error=st.sampled_from(["", "no answer"]),
)  # fmt: skip

ALERTS = AlertSettings(command=("page-me",), at_most_per_h=2)
OFFSITE = OffsiteSettings(repository="/srv/copies", every_s=30.0)
WHEN_DONE = WhenDoneSettings(("stop-me",), ("done", "stuck"), after_s=20.0)


class AnyInputs(RuleBasedStateMachine):
    @initialize(slots=st.integers(0, 3))
    def begin(self, slots):
        self.core = Core(
            configured(
                "A",
                spec("B", priority=5, checkpoint_glob="*.pt"),
                spec("C", autostart=False),
                slots=slots,
                alerts=ALERTS,
                offsite=OFFSITE,
                when_done=WHEN_DONE,
            )
        )
        self.ended_in_order = False
        self.core.begin()

    def token(self, name, real):
        program = self.core.state.programs.get(name)
        return program.attempt.token if real and program is not None and program.attempt is not None else "0" * 32

    def give(self, item):
        if not self.core.memory.ended:  # the loop has left
            return self.core.give(item)
        return None

    @property
    def now_s(self):
        return self.core.now_s

    @rule(seconds=st.sampled_from([0.0, 0.001, 1.0, 5.0, 30.0, 700.0, 10_000.0]))
    def time_passes(self, seconds):
        self.core.now_s += seconds
        self.give(Woke(self.now_s))

    @precondition(lambda self: self.core.wake_at_s is not None)
    @rule()
    def the_deadline_comes(self):
        self.core.now_s = max(self.now_s, self.core.wake_at_s)
        self.give(Woke(self.now_s))

    @rule(name=names, real=st.booleans(), pid=st.integers(1, 99))
    def spawned(self, name, real, pid):
        self.give(SpawnSucceeded(self.now_s, name, self.token(name, real), pid, 1, 2, 3))

    @rule(name=names, real=st.booleans(), found=own_checkpoints, left=st.sampled_from([(), ("/w/a",)]))
    def own_checkpoints_are_found(self, name, real, found, left):
        self.give(CheckpointsFound(self.now_s, name, self.token(name, real), found, left))

    @rule(name=names, real=st.booleans(), permanent=st.booleans())
    def broke(self, name, real, permanent):
        self.give(SpawnBroke(self.now_s, name, self.token(name, real), "fork failed", permanent))

    @rule(name=names, real=st.booleans(), ending=endings)
    def ended(self, name, real, ending):
        self.give(Ended(self.now_s, name, self.token(name, real), ending))

    @rule(name=names, real=st.booleans(), evidence=st.sampled_from([{}, {"stacks": "x"}]))
    def evidence(self, name, real, evidence):
        self.give(EvidenceTaken(self.now_s, name, self.token(name, real), evidence))

    @rule(
        name=names, real=st.booleans(), moved=maybe_time, live=maybe_time, deadline=maybe_time, ready=st.booleans(),
        state=st.sampled_from([None, *"RSDTZ"]), phase=st.sampled_from([None, "training", "saving", "building", "odd"]),
        ckpt=st.none() | steps, count=st.integers(0, 2), rate=st.none() | st.floats(0, 1e6), seen=st.lists(reports, max_size=2),
        looks=st.integers(1, 3), own=st.none() | own_checkpoints,
    )  # fmt: skip
    def look(self, name, real, moved, live, deadline, ready, state, phase, ckpt, count, rate, seen, looks, own):
        at = lambda ago: None if ago is None else self.now_s + ago  # noqa: E731
        for _ in range(looks):
            self.core.now_s += 1.0
            sample = Sample(
                self.token(name, real), state, live_at_s=at(live), progress_at_s=at(moved), phase=phase,
                phase_deadline_s=at(deadline), ready=ready, steps=ckpt, steps_per_s=rate, ckpt_step=ckpt, ckpt_count=count,
                ckpt_stall_s=None if count == 0 else 0.01, own=own,
            )  # fmt: skip
            self.give(Sampled(self.now_s, {name: sample}, tuple((name, sample.token, report) for report in seen)))

    @rule(
        verb=st.sampled_from([Verb.START, Verb.STOP, Verb.RESTART, Verb.SIGNAL, Verb.CLEAR]),
        asked=st.lists(names, max_size=3),
    )
    def asks(self, verb, asked):
        self.core.request += 1
        self.give(Asked(self.now_s, verb, self.core.request, tuple(asked), "SIGUSR1"))

    @rule(verb=st.sampled_from([Verb.BACKUP, Verb.ROLLBACK]), asked=st.lists(names, max_size=2))
    def asks_for_backups(self, verb, asked):
        self.core.request += 1
        self.give(Asked(self.now_s, verb, self.core.request, tuple(asked), text="b"))

    @rule(due_s=st.floats(-100.0, 100.0))
    def the_calendar_says_so(self, due_s):
        self.give(BackupDue(self.now_s, self.core.wall_offset_s + self.now_s + due_s))

    @rule(data=st.data(), real=st.booleans(), error=st.sampled_from(["", "disk full"]))
    def news_of_backups(self, data, real, error):
        record = self.core.state.backups
        making = [each.name for each in record.making] if real else []
        self.give(BackupMade(self.now_s, making[0] if making else "odd", error))
        kept_as = record.rollback.kept_as if real and record.rollback is not None else "odd"
        found = data.draw(st.lists(names, max_size=3, unique=True))
        if data.draw(st.booleans()):
            self.give(BackupChecked(self.now_s, kept_as, error, tuple(found)))
        else:
            self.give(BackupRestored(self.now_s, kept_as, error, dict.fromkeys(found, 5)))

    @rule(text=st.sampled_from(["now", "check", "take-over"]), due_s=st.floats(-100.0, 100.0))
    def asks_for_copies(self, text, due_s):
        self.core.request += 1
        self.give(Asked(self.now_s, Verb.OFFSITE, self.core.request, text=text))
        self.give(OffsiteDue(self.now_s, "check", self.core.wall_offset_s + self.now_s + due_s))

    @rule(
        what=st.sampled_from(["copy", "look", "take-over", "forget", "check"]), error=st.sampled_from(["", "no answer"]),
        claim=st.sampled_from(Claim), cause=st.sampled_from(["period", "operator", "reboot"]),
    )  # fmt: skip
    def news_of_copies(self, what, error, claim, cause):
        self.give(LeaseFound(self.now_s, claim, Lease("t", 1, "box")))
        self.give(OffsiteDone(self.now_s, what, cause, error, "abc", self.now_s))

    @rule(do=st.sampled_from(["cancel", "delay", "now"]), error=st.sampled_from(["", "no answer"]))
    def the_end_of_the_work(self, do, error):
        self.core.request += 1
        self.give(Asked(self.now_s, Verb.WHEN_DONE, self.core.request, text=do, for_s=60.0 if do == "delay" else None))
        self.give(WhenDoneEnded(self.now_s, error))

    @rule(
        found=st.lists(end_notices, max_size=2, unique_by=lambda each: each.id), errors=st.sampled_from([{}, {"aws": "no"}])
    )
    def notices_of_the_end(self, found, errors):
        heard = tuple(replace(each, until_s=each.until_s and self.now_s + each.until_s) for each in found)
        self.give(EndNoticesRead(self.now_s, heard, errors))

    @rule(whose=st.sampled_from(["command", "odd"]), real=st.booleans(), error=st.sampled_from(["", "no answer"]))
    def news_of_alerts(self, whose, real, error):
        reaching = self.core.memory.delivering.reaching.get(whose)
        self.give(AlertTried(self.now_s, whose, reaching.sending if real and reaching is not None else "odd", error))

    @rule(due_s=st.floats(-1e6, 1e6), text=st.text(max_size=20))
    def the_report_is_due(self, due_s, text):
        self.give(ReportDue(self.now_s, self.core.wall_offset_s + self.now_s + due_s, text))

    @rule(found=st.lists(findings, max_size=3, unique_by=lambda each: each.name))
    def foundations_are_looked_at(self, found):
        self.give(FoundationsLooked(self.now_s, tuple(found)))

    @rule(
        gone=st.lists(names, max_size=2),
        real=st.booleans(),
        failing=st.lists(
            st.builds(
                Failing,
                st.sampled_from(["exits", "alerts"]),
                st.just("EMFILE"),
                st.sampled_from([None, 5.0, 500.0]),
                st.booleans(),
            ),
            max_size=2,
            unique_by=lambda each: each.name,
        ),
    )
    def supervision_is_looked_at(self, gone, real, failing):
        tokens = frozenset(self.token(name, real) for name in gone)
        self.give(SupervisionLooked(self.now_s, tuple(failing), tokens))

    @rule(
        name=names,
        real=st.booleans(),
        job=st.sampled_from(["17", "18"]),
        runs=st.booleans(),
        error=st.sampled_from(["", "down"]),
    )
    def the_queue_is_looked_at(self, name, real, job, runs, error):
        sight = JobSight(self.token(name, real), job, "RUNNING" if runs else "PENDING", node="a14", runs=runs)
        self.give(JobsSeen(self.now_s, {} if error else {name: sight}, error))

    @rule(seconds=st.sampled_from([0.0, 30.0, 10_000.0]))
    def the_journal_fails(self, seconds):
        """As `shell/loop.py` says it: what is decided is not committed, and the next turn that is, tells of it first."""
        core = self.core
        if not core.memory.ended:
            trouble = core.memory.trouble or Trouble(self.now_s, core.wall_offset_s + self.now_s, "disk full")
            core.memory = replace(core.memory, trouble=trouble)
            core.now_s += seconds
            assert JournalStalled in [type(fact) for fact in self.give(Woke(self.now_s)).facts]

    @rule(verb=st.sampled_from([Verb.SHUTDOWN, Verb.RELOAD, None]))
    def end(self, verb):
        self.core.request += 1
        self.give(Terminated(self.now_s, "SIGTERM") if verb is None else Asked(self.now_s, verb, self.core.request))

    @rule(
        slots=st.integers(0, 4), digests=st.dictionaries(st.sampled_from(["A", "B", "C", "D"]), st.sampled_from("xy")),
        only=st.lists(names, max_size=2).map(tuple),
    )  # fmt: skip
    def update(self, slots, digests, only):
        new = configured(*(spec(name, digest=digest) for name, digest in digests.items()), slots=slots)
        self.give(ConfigLoaded(self.now_s, new, only))

    @rule(errors=st.lists(st.text(max_size=20), min_size=1, max_size=9), in_use=st.sampled_from(["", "x.toml as of then"]))
    def bad_config(self, errors, in_use):
        self.give(ConfigFaulty(self.now_s, tuple(errors), in_use))

    @rule(facts=st.integers(0, 10**6))
    def snapshot(self, facts):
        self.give(SnapshotDue(self.now_s, facts))

    @rule(step_s=st.floats(-1e6, 1e6))
    def clock(self, step_s):
        self.core.wall_offset_s += step_s
        self.give(ClockMoved(self.now_s, step_s))

    @rule(data=st.data(), rebooted=st.booleans(), up_s=st.none() | st.floats(0, 1e5), away_s=st.floats(0, 1e5))
    def another_daemon(self, data, rebooted, up_s, away_s):
        """The one before was killed, re-executed or ended; the survey may say anything of what the journal believes."""
        core = self.core
        core.now_s += away_s
        if rebooted:
            core.boot_id = f"boot-{len(core.journal)}"
        found = {}
        for name, program in core.state.live.items():
            survival = data.draw(st.sampled_from([None, *Survival]))
            if survival is not None:
                pid = data.draw(st.none() | st.integers(1, 99))
                found[name] = Survivor(program.attempt.token, survival, pid, ending=data.draw(st.none() | endings))
        boot = BootEvidence(core.boot_id, rebooted, "test", data.draw(st.sampled_from(["unclean", "orderly"])), None, up_s)
        before = {name: program.restarts for name, program in core.state.programs.items()}
        core.memory = Memory()
        core.give(Began(core.now_s, core.settings, boot, found, 1, "1", str(len(core.journal))))
        if rebooted:
            for name, program in core.state.programs.items():
                assert program.restarts == before.get(name, 0), f"{name} pays for a reboot"

    @invariant()
    def no_more_processes_than_slots(self):
        """A lowered level is reached by asking to leave: those that were not asked fit into it."""
        programs = self.core.state.programs.values()
        unasked = [program.name for program in programs if program.attempt is not None and program.attempt.stop is None]
        if not self.core.memory.ended and not self.core.lacks_files:  # one that could not save is not asked to leave
            assert len(unasked) <= self.core.settings.level.slots

    @invariant()
    def a_free_slot_is_used(self):
        state = self.core.state
        if state.stopping or self.core.memory.ended or self.core.lacks_files:
            return
        if state.offsite.keeps_down(on=self.core.settings.offsite.on) or state.notices.keeps_down(self.now_s):
            return
        if (self.core.memory.copying.first_look_s or 0.0) > self.now_s:
            return
        busy = [program for program in state.programs.values() if program.phase in HAS_PROCESS or program.retry.at_s
                or state.backups.holds(program.name)]  # fmt: skip
        waiting = [
            program.name for program in state.programs.values()
            if program.phase == "QUEUED" and self.core.settings.program(program.name) is not None
            and not state.backups.holds(program.name)
        ]  # fmt: skip
        assert not waiting or len(busy) >= self.core.settings.level.slots, f"{waiting} wait beside a free slot"

    @invariant()
    def nobody_waits_for_what_is_down(self):
        for pending in self.core.memory.pending:
            assert pending.waiting
            for name in pending.waiting:
                assert self.core.phase(name) == "STOPPING"

    @invariant()
    def it_can_be_shown(self):
        core = self.core
        views = program_views(core.state, {}, core.settings, now_s=core.now_s)
        assert all(view["why"] for view in views)
        status_view(FakeSources(core.state, core.settings, core.memory, core.journal, core.now_s))

    def teardown(self):
        if hasattr(self, "core"):
            assert fold_all(self.core.journal) == self.core.state


TestAnyInputs = AnyInputs.TestCase
TestAnyInputs.settings = settings(
    max_examples=20 * int(os.environ.get("SIM_SEEDS", "2")), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip


def test_every_input_is_among_them():
    """An input that is new in the core is to be given here too."""
    given = inspect.getsource(AnyInputs)
    missing = [each.__name__ for each in _HANDLERS if f"{each.__name__}(" not in given]
    assert not missing
