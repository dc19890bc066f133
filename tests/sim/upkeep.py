"""What long calm years consist of: the calendar, alerts and their targets, the journal's archive, a person who looks in.

The world plays `adapters/housekeeping.py` and the threads that send alerts; the rules (when a backup is due, which ones
are superfluous, when the journal is cut) are the real ones or, where these are SQL, the same rule in a few lines.
"""

import datetime as dt
from dataclasses import replace

import removable
from invariants import hold

from supervisor.adapters.journal.archive import SNAPSHOT_FACTS
from supervisor.model.fold import fold
from supervisor.model.inputs import SnapshotDue, Verb
from supervisor.model.lifecycle import Phase
from supervisor.model.state import State
from supervisor.policy.upkeep.calendars import last_due

AlertTried, ReportDue = removable.of("alerts.messages", "AlertTried", "ReportDue")
(BackupDue,) = removable.of("backups.messages", "BackupDue")
Kept, superfluous = removable.of("backups.rules", "Kept", "superfluous")
DAY_S = 86400.0
FIRST_LOOK_S = 60.0  # at the journal, after a start
CALENDAR_S = 20.0  # how soon housekeeping sees that a time has passed
VISIT_S = DAY_S
COMES = 0.5  # of the days: somebody looks in, and starts what is down


class Upkeep:
    """The part of the world that keeps house; `world.py` has the rest."""

    # --- the calendar -------------------------------------------------------------------------------------------------------

    def begin_calendar(self):
        """Housekeeping of a daemon that has just begun."""
        if self.upkeep:
            self.calendar_told = {}
            self.after(FIRST_LOOK_S, self.look_at_calendar, self.daemon)

    def look_at_calendar(self, daemon):
        """Tell of each time that has passed, care for the journal, and come again when the next one has."""
        if daemon != self.daemon:
            return
        calendars = self.calendars()
        now = dt.datetime.fromtimestamp(self.wall_s, dt.UTC)
        for what, calendar in calendars.items():
            due = last_due(calendar, now)
            due_s = None if due is None else due.timestamp()
            if due_s is not None and self.calendar_told.get(what) != due_s:
                self.calendar_told[what] = due_s
                self.post(BackupDue(0.0, due_s) if what == "backup" else ReportDue(0.0, due_s, "all is well\nno reboot"))
        self.care_for_journal()
        times = [last_due(calendar, now + dt.timedelta(days=1)) for calendar in calendars.values()]
        next_s = min((each.timestamp() for each in times if each is not None), default=self.wall_s + DAY_S)
        self.after(min(DAY_S, max(0.0, next_s - self.wall_s)) + CALENDAR_S, self.look_at_calendar, daemon)

    def calendars(self):
        """When backups and the daily report are due."""
        rules = self.core.settings
        found = {"backup": rules.backup.calendar} if "backups" in removable.PRESENT else {}
        return {**found, "report": f"daily {rules.alerts.report_at}"} if "alerts" in removable.PRESENT else found

    # --- the journal ------------------------------------------------------------------------------------------------------------

    def care_for_journal(self):
        """A snapshot when the next start would have much to fold; what is older than `keep_days` leaves for the archive."""
        core = self.core
        count = core.last_seq - (core.snapshots[-1][0] if core.snapshots else 0)
        if count >= SNAPSHOT_FACTS:
            self.post(SnapshotDue(0.0, count))
        before_wall_s = self.wall_s - core.settings.journal.keep_days * DAY_S
        old = [seq for seq, wall_s in core.snapshots if wall_s < before_wall_s]
        if old and old[-1] > core.archived + 1 and core.failing is None:
            self.archive(old[-1])

    def archive(self, first):
        """The facts before this snapshot leave the journal: they must come to the very state that it has."""
        core, state = self.core, State()
        cut = first - core.archived - 1
        for row in core.journal[:cut]:
            state = fold(state, row)
        noted = fold(State(), replace(core.journal[cut], at_s=state.at_s, wall_s=state.wall_s, boot_id=state.boot_id))
        hold("a snapshot is what the facts before it come to", noted == state, f"snapshot {first} is not")
        core.archived, core.journal = core.archived + cut, core.journal[cut:]
        core.snapshots = [each for each in core.snapshots if each[0] >= first]
        core.whole_at = min(core.whole_at, len(core.journal))
        self.tell("--", f"{cut} facts leave for the archive")

    # --- alerts --------------------------------------------------------------------------------------------------------------------

    def deliver(self, target, notice):
        """Seconds later a target has it, or has not: the network is down."""
        self.deliveries += 1
        down = self.now_s < self.network_down_until_s
        least_s, most_s = (15.0, 16.0) if down else (0.1, 5.0)
        tried = AlertTried(0.0, target, notice.id, "Network is unreachable" if down else "")
        self.after(self.chance.between(least_s, most_s, "alert", self.deliveries), self.arrive, self.daemon, tried)

    # --- backups --------------------------------------------------------------------------------------------------------------------

    def note_backup(self, name, cause):
        self.kept_backups[name] = Kept(name, cause, self.wall_s)

    def keep_backups(self, command):
        """The backups that go when this one is made, by the rule of keeping."""
        self.note_backup(command.name, command.cause)
        if not self.upkeep:
            return ()
        gone = superfluous(self.kept_backups.values(), self.core.settings.backup.keep, (*command.spare, command.name))
        for name in gone:
            del self.kept_backups[name], self.backups[name]
        return tuple(gone)

    # --- a person ---------------------------------------------------------------------------------------------------------------------

    def begin_visits(self):
        if self.upkeep:
            self.after(VISIT_S, self.visit, 1)

    def visit(self, number):
        """On some days somebody looks in, and starts what is down."""
        self.after(VISIT_S, self.visit, number + 1)
        if not self.daemon or self.calm or self.chance.share("visit", number) >= COMES:
            return
        down = [p.name for p in self.core.state.programs.values() if p.phase in {Phase.FATAL, Phase.DONE, Phase.STOPPED}]
        if down:
            self.ask(Verb.START, *down)
