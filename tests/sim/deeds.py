"""What the daemon's commands do in the simulated world, and what comes of them: processes begin, hear signals, and end."""

from dataclasses import replace

import removable
from core_kit import commands
from invariants import hold, is_rolled_back
from training import Worker

from supervisor.model.inputs import CheckpointsFound, Ended, Ending, EvidenceTaken, SpawnSucceeded

(Deliver,) = removable.of("alerts.messages", "Deliver")
Backup, BackupMade, CheckBackup, BackupChecked, RestoreBackup, BackupRestored = removable.of(
    "backups.messages", "Backup", "BackupMade", "CheckBackup", "BackupChecked", "RestoreBackup", "BackupRestored"
)
(ROLLBACK,) = removable.of("backups.rules", "ROLLBACK")
OffsiteCopy, OffsiteTakeOver = removable.of("offsite.messages", "OffsiteCopy", "OffsiteTakeOver")
DOWN_S = 300.0  # until somebody starts a daemon again that was told to end


class Deeds:
    """The part of the world that obeys; `world.py` has the rest."""

    def do(self, command):
        match command:
            case commands.Spawn(spec=found, attempt=number, token=token, aside=aside):
                if found.checkpoint_glob:
                    own = self.disks[found.name].own(aside)
                    self.send(0.0, 0.1, CheckpointsFound(0.0, found.name, token, own), number)
                self.spawn(found.name, number, token)
            case commands.Adopt(spec=found, survivor=survivor):
                self.watched[found.name] = survivor.token
            case commands.Watch(spec=found, token=token):
                self.watched[found.name] = token
            case commands.Forget(program=name, token=token):
                if self.watched.get(name) == token:
                    del self.watched[name]
            case commands.SendSignal(programs=sent, signal=signal, request_id=request):
                for _, token in sent:
                    self.signal(token, signal)
                if request:
                    self.answer(request)
            case commands.ContinueChild(token=token):
                if token in self.living:
                    self.living[token].continue_child(self.now_s)
            case commands.AskToLeave(token=token):
                self.signal(token, "SIGCONT")
                self.signal(token, "SIGTERM")
            case commands.KillTree(token=token):
                self.kill(token)
            case commands.TakeEvidence(program=name, token=token):
                number = self.core.state.programs[name].attempt.number
                if not self.luck_fails(self.odds.evidence_lost, "no evidence", name, number):
                    self.send(0.1, 5.0, EvidenceTaken(0.0, name, token, {"stacks": "File x"}), number)
            case commands.SetControl(token=token, interval_s=interval_s):
                if token in self.living:
                    self.living[token].save_every(interval_s, self.now_s)
            case commands.QuarantineCheckpoint(program=name, step=step):
                disk = self.disks[name]
                disk.checkpoints = [found for found in disk.checkpoints if found != step]
                disk.poison.discard(step)
            case commands.RollBack(program=name, from_step=step):
                self.disks[name].roll_back(step)
            case Backup(name=name, programs=names):
                steps = {each: self.disks[each].newest() for each in names if self.disks[each].checkpoints}
                self.backups[name] = steps
                removed = self.keep_backups(command)
                self.post_later(BackupMade(0.0, name, "" if steps else "nothing there", steps, removed=removed))
            case Deliver(target=target, notice=notice) if self.upkeep:
                self.deliver(target, notice)
            case CheckBackup(backup=name, programs=names, kept_as=kept_as):
                steps = self.backups.get(name, {})
                found = tuple(each for each in names or steps if each in steps)
                self.post_later(BackupChecked(0.0, kept_as, "" if found else "no such backup", found))
            case RestoreBackup():
                self.post_later(self.restore(command))
            case OffsiteCopy() | OffsiteTakeOver() if self.repository is not None:
                self.repository.does(self, command)
            case commands.Reply(request_id=request) | commands.ClearLogs(request_id=request):
                self.answer(request)
            case commands.EndDaemon(reexec=reexec):
                self.pid -= reexec  # the same process
                self.leave_mark()
                self.leave(0.5 if reexec else DOWN_S)

    def post_later(self, item):
        """News of backups to the daemon of now."""
        self.after(self.chance.between(0.1, 20.0, "backup", type(item).__name__), self.arrive, self.daemon, item)

    def restore(self, command):
        alive = [worker.name for worker in self.alive() if worker.name in command.programs]
        hold("nobody runs while checkpoints are exchanged", not alive, f"{alive} run while {command.backup} is put in place")
        source = {name: self.backups[command.backup][name] for name in command.programs}
        self.backups.setdefault(command.kept_as, {name: self.disks[name].newest() for name in source})
        self.note_backup(command.kept_as, ROLLBACK)
        for name, step in source.items():
            self.disks[name].checkpoints = [step]
        return BackupRestored(0.0, command.kept_as, "", source, kept=True)

    def answer(self, request):
        hold("a request is answered once", request in self.waiting, f"request {request}, again or unasked")
        del self.waiting[request]

    def spawn(self, name, number, token):
        live = [worker.name for worker in self.alive()]
        hold("at most one process a program", name not in live, f"a second process of {name} is started")
        slots, specs = self.core.settings.level.slots, self.core.settings
        trains = [each for each in (*live, name) if (spec := specs.program(each)) is None or not spec.service]
        hold(
            "no more processes than slots",
            len(trains) <= slots,
            f"{name} is started beside {', '.join(live)}: {slots} slots",
        )
        hold("what is unwanted stays down", self.core.state.programs[name].wanted, f"{name} is started")
        held = is_rolled_back(self.core.state, name)
        hold("what goes back to a backup does not start", not held, f"{name} is started during its rollback")
        if self.start_goes_wrong(name, number, token):
            return
        worker = Worker(name, token, number, self.now_s, self.disks[name], at_s=self.now_s)
        worker.is_script = name in self.scripts
        if self.specs[name].checkpoint_glob:
            worker.saves_itself = True
            if self.disks[name].newest() in self.disks[name].damage:
                self.after(3.0, self.end, token, Ending(code=1, last_lines=("RuntimeError: unexpected EOF",)))
        worker.prints_every = self.prints_every if worker.is_script else 0
        if self.save_cost_s is not None:
            worker.save_cost_s = self.save_cost_s
        self.workers[token] = self.living[token] = worker
        self.send(0.0, 0.2, SpawnSucceeded(0.0, name, token, 1000 + number, 5, 1001 + number, 5), number)
        self.worker_goes_wrong(worker)

    def signal(self, token, signal):
        worker = self.living.get(token)
        if worker is None:
            return
        if signal == "SIGCONT" and worker.state == "T":
            worker.state = "S"
            worker.move_again(self.now_s)
        if signal == "SIGCONT":  # with SIGTERM the shim wakes all of the tree
            worker.continue_child(self.now_s)
        if signal == "SIGTERM" and not worker.ignores_term and worker.stuck_at_s is None:
            self.after(self.chance.between(0.1, 5.0, "leaves", worker.name, worker.number), self.save_and_leave, token)

    def save_and_leave(self, token):
        worker = self.living.get(token)
        if worker is not None and worker.stuck_at_s is None:
            worker.advance(self.now_s)
            if worker.resumed is not None:
                worker.save(worker.steps)
            self.end(token, Ending(code=75))

    def kill(self, token):
        worker = self.living.get(token)
        if worker is not None and worker.state == "D":
            worker.doomed = True
        elif worker is not None:
            self.end(token, Ending(signal=9))

    def end(self, token, ending):
        """The process is gone, its tree too; the news takes a moment, and waits in the exit record if nobody listens."""
        worker = self.living.get(token)
        if worker is None or (worker.state in {"D", "T"} and ending.signal != 9):
            return
        worker.die(self.now_s)
        del self.living[token]
        steps = int(worker.steps) if worker.resumed is not None else None
        known = worker.disk.newest() if worker.saves else None
        if worker.is_script:
            steps = known = None
        if worker.saves and self.luck_fails(self.odds.poison * worker.saves, "poison", worker.name, worker.number):
            worker.disk.poison.add(worker.disk.newest())
        worker.ending = replace(ending, steps=steps, ckpt_step=known, reports=worker.reports())
        self.send(0.01, 0.2, Ended(0.0, worker.name, token, worker.ending), worker.number)
        self.look_soon()

    def alive(self, name=None):
        """The processes there are, of one program or of all."""
        return [worker for worker in self.living.values() if name is None or worker.name == name]
