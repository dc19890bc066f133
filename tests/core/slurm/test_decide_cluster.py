"""Programs that are jobs of a cluster: what is put on record of them, and what follows from their ends."""

from dataclasses import replace

import pytest
from core_kit import Core, commands, facts, of, settings, spec

from supervisor.features.slurm.messages import JobSight, JobsSeen
from supervisor.features.slurm.rules.job_end import JobEnd
from supervisor.features.slurm.rules.nodes import KEPT
from supervisor.features.slurm.settings import JobResources, LauncherSettings, NextJob
from supervisor.model.fold import fold
from supervisor.model.inputs import Ended, Ending, Sampled, Survival, Survivor, Terminated
from supervisor.model.launching import Launching
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import DaemonSettings, Level, Progress, Rung
from supervisor.policy.box.readings import Gpus
from supervisor.policy.level.load import CLIMB, LoadSettings

ONE = LauncherSettings(kind="slurm", node_faults=2, node_exclude_s=3600.0)


def cluster(*programs, **more):
    core = Core(settings(*(programs or ("Pong",)), launcher=ONE, **more))
    core.begin()
    return core


def seen(core, name="Pong", **more):
    """One look at the queue."""
    sight = JobSight(core.token(name), **{"job": "17", "state": "PENDING", "reason": "Resources", **more})
    return core.give(JobsSeen(core.now_s, {name: sight}))


def runs(core, name="Pong", **more):
    seen(
        core, name,
        **{"state": "RUNNING", "node": "a14", "partition": "gpu", "account": "lab", "gpus": 2, "runs": True, **more},
    )  # fmt: skip
    core.spawned(name)


def ended(core, name="Pong", *, code=None, signal=None, ran_s=100.0, **job):
    core.later(ran_s)
    end = JobEnd(**{"job": "17", "state": "COMPLETED", "node": "a14", "began": True, **job})
    return core.give(Ended(core.now_s, name, core.token(name), Ending(code=code, signal=signal, job=end)))


def test_a_job_is_on_record_when_the_queue_shows_it_and_again_when_it_has_a_node():
    core = cluster()
    assert [type(fact) for fact in seen(core).facts] == [facts.JobSubmitted]
    assert seen(core).facts == ()
    assert core.state.cluster.jobs["Pong"].begun_at_s is None
    assert core.memory.jobs.seen["Pong"].reason == "Resources"
    core.later(600.0)
    told = seen(core, state="RUNNING", node="a14", partition="gpu", account="lab", gpus=2, runs=True).facts
    assert [(fact.job, fact.node, fact.partition, fact.account, fact.gpus) for fact in told] == [
        ("17", "a14", "gpu", "lab", 2)
    ]
    assert seen(core, state="RUNNING", runs=True).facts == ()
    assert core.state.cluster.jobs["Pong"].begun_at_s == core.now_s


def test_a_job_that_began_between_two_looks_is_on_record_twice_at_once():
    core = cluster()
    told = seen(core, state="RUNNING", runs=True).facts
    assert [type(fact) for fact in told] == [facts.JobSubmitted, facts.JobStarted]
    assert told[1].why == "job 17 began on a node"


def test_a_look_at_a_job_of_an_attempt_that_is_over_changes_nothing():
    core = cluster()
    told = core.give(JobsSeen(core.now_s, {"Pong": JobSight("ab" * 16, "17"), "Qbert": JobSight("cd" * 16, "18")}))
    assert told.facts == ()


def test_time_in_the_queue_is_no_time_without_progress():
    core = cluster()
    seen(core)
    core.later(50_000.0)
    runs(core)
    core.later(5.0)
    core.look(Pong={"progress_at_s": None, "live_at_s": None, "phase": None, "ready": False})
    assert core.told(facts.Stalled) == []
    core.later(130.0)
    core.look(Pong={"progress_at_s": None, "live_at_s": None, "phase": None, "ready": False})
    assert [fact.stall for fact in core.told(facts.Stalled)] == ["silent"]


def test_a_job_that_slurm_puts_back_goes_on_as_the_next_attempt_with_the_token_that_its_node_knows():
    core = cluster()
    runs(core)
    last = ended(core, state="PENDING", requeued=True, next_token="cd" * 16)
    assert core.token("Pong") == "cd" * 16
    assert core.attempt("Pong").number == 2
    assert [command.token for command in of(last, commands.Spawn)] == ["cd" * 16]
    assert core.state.cluster.next_tokens == {}
    runs(core, job="17")
    ended(core, code=1)  # and that one is submitted anew
    assert core.token("Pong") != "cd" * 16


@pytest.mark.parametrize(("verb", "phase"), [("stop", Phase.STOPPED), ("restart", Phase.STARTING)])
def test_a_job_that_was_put_back_while_it_was_to_leave_is_not_gone_on_with(verb, phase):
    """Its order is of before, and it was deleted already."""
    core = cluster()
    runs(core)
    core.ask(verb, "Pong")
    ended(core, state="PENDING", requeued=True, next_token="cd" * 16)
    assert core.told(facts.JobRequeued) == []
    assert core.phase("Pong") is phase
    assert phase is Phase.STOPPED or core.token("Pong") != "cd" * 16


def test_a_job_that_was_put_back_is_not_gone_on_with_after_a_change_of_its_program():
    core = cluster("Pong", "Qbert", slots=1)
    told = facts.JobRequeued("it goes on", "Qbert", "18", "ef" * 16)
    changed = facts.ProgramConfigured("changed", "Qbert", "new digest", autostart=True)
    state = core.state
    for fact, left in ((told, 1), (replace(changed, live=True), 1), (changed, 0)):
        state = fold(state, facts.Stamped(0, core.now_s, 0.0, "boot", fact))
        assert len(state.cluster.next_tokens) == left, "only a change that needs a new process counts"


def test_a_start_that_failed_leaves_no_job_on_record():
    core = cluster()
    seen(core)
    core.broke("Pong", "sbatch gave no answer")
    assert core.state.cluster.jobs == {}
    core.to_wake()
    core.broke("Pong", "Slurm refuses the job: invalid account", refused=True)
    assert core.phase("Pong") is Phase.FATAL


def test_somebody_who_deletes_a_job_has_stopped_its_program():
    core = cluster()
    runs(core)
    ended(core, state="CANCELLED", asked="signal", code=75)
    assert core.phase("Pong") is Phase.STOPPED
    assert not core.program("Pong").wanted
    assert "extralifectl start" in core.told(facts.StayedDown)[-1].why
    core.ask("start", "Pong")
    assert core.phase("Pong") is Phase.STARTING


def test_a_node_that_loses_jobs_again_and_again_is_avoided_for_a_while():
    core = cluster()
    for number in ("17", "18"):
        runs(core, job=number)
        assert of(core.last, commands.Watch)
        last = ended(core, state="NODE_FAIL", job=number)
    assert [fact.job for fact in core.told(facts.NodeFaulted)] == ["17", "18"]
    assert core.program("Pong").restarts == 0
    until_s = core.now_s + 3600.0
    assert [(fact.node, fact.until_s) for fact in core.told(facts.NodeExcluded)] == [("a14", until_s)]
    assert [command.spec.job.avoid for command in of(last, commands.Spawn)] == [("a14",)]
    assert core.state.cluster.avoid(until_s) == ()
    found = core.state.cluster.partitions["gpu"]
    assert (found.faults, found.up_s) == (2, 200.0)


def test_gpu_time_is_booked_on_the_account():
    core = cluster()
    runs(core)
    ended(core, code=75, asked="time limit", ran_s=3600.0)
    runs(core, job="18", account="")
    ended(core, code=0, ran_s=60.0)
    booked = {account: (each.jobs, each.job_s, each.gpu_s) for account, each in core.state.cluster.usage.items()}
    assert booked == {"lab": (1, 3600.0, 7200.0), "default": (1, 60.0, 120.0)}
    assert core.phase("Pong") is Phase.DONE


def test_preemptions_are_on_the_record_of_the_partition_and_blame_no_node():
    core = cluster()
    for number in ("17", "18", "19"):
        runs(core, job=number)
        ended(core, state="PREEMPTED", job=number, asked="signal", code=75)
    found = core.state.cluster.partitions["gpu"]
    assert (found.preemptions, found.faults, found.up_s) == (3, 0, 300.0)
    assert core.told(facts.NodeFaulted) == []
    assert core.phase("Pong") is Phase.STARTING


def test_a_job_that_never_began_has_used_nothing():
    core = cluster()
    seen(core)
    ended(core, state="CANCELLED", node="", began=False)
    assert core.state.cluster.usage == {}
    assert core.state.cluster.jobs == {}


def test_a_cluster_that_does_not_answer_is_told_once_and_changes_nothing_else():
    core = cluster()
    runs(core)
    token = core.token("Pong")
    first = core.give(JobsSeen(core.now_s, {}, "Unable to contact slurm controller"))
    assert [type(fact) for fact in first.facts] == [facts.ClusterUnreachable]
    assert core.later(60.0).give(JobsSeen(core.now_s, {}, "Unable to contact slurm controller")).facts == ()
    assert core.token("Pong") == token
    assert core.state.cluster.error == "Unable to contact slurm controller"
    core.later(60.0)
    back = seen(core, state="RUNNING", runs=True)
    assert [fact.after_s for fact in back.facts] == [120.0]
    assert core.state.cluster.unreachable_since_s is None


def test_gpus_of_this_host_hold_up_no_job():
    core = Core(settings(spec("Pong", min_free_mb=50_000, gpu=0), launcher=ONE))
    core.begin()
    core.see(Gpus(None))
    assert core.phase("Pong") is Phase.STARTING


def test_a_daemon_goes_on_with_jobs_that_wait_and_jobs_that_run():
    core = cluster(spec("Pong"), spec("mine", progress=Progress.AUTO))
    runs(core)
    waiting = core.token("mine")
    core.later(10.0)
    core.begin(
        ("Pong", Survivor(core.token("Pong"), Survival.ALIVE, 1001, 77, 2001, 78)),
        ("mine", Survivor(waiting, Survival.ALIVE)),
    )
    assert [command.survivor.pid for command in of(core.last, commands.Adopt)] == [1001, None]
    assert core.token("mine") == waiting
    assert of(core.last, commands.Spawn) == []
    core.spawned("mine")
    assert core.attempt("mine").pid == 1001


def test_a_signal_ends_the_daemon_and_leaves_the_jobs_and_a_request_ends_both():
    core = cluster()
    runs(core)
    (end,) = of(core.give(Terminated(core.now_s, by="SIGTERM")), commands.EndDaemon)
    assert end.reexec is False
    assert core.state.live
    core = cluster()
    runs(core)
    asked = core.ask("shutdown")
    assert not of(asked, commands.EndDaemon)
    assert of(asked, commands.AskToLeave)


def test_a_job_that_the_cluster_refuses_to_delete_is_named_and_holds_up_neither_stop_nor_shutdown():
    core = cluster()
    runs(core)
    core.ask("stop", "Pong")
    core.to_wake()
    seen(core, state="RUNNING", runs=True, refused="scancel: error: Access/permission denied")
    while not core.told(facts.NotEnded):
        core.to_wake()
    (reply,) = of(core.last, commands.Reply)
    assert reply.results == (
        ("Pong", 30, "the cluster refuses to delete its job: scancel: error: Access/permission denied"),
    )
    core.ask("shutdown")
    while not core.memory.ended:
        core.to_wake()


def test_a_setup_that_failed_is_given_up_unless_the_program_has_run_with_it():
    core = cluster()
    core.broke("Pong", "line 1 of launcher.setup ended with status 127: conda activate rl", permanent=True)
    assert core.phase("Pong") is Phase.FATAL
    core = cluster()
    runs(core)
    ended(core, code=1)
    core.broke("Pong", "line 1 of launcher.setup ended with status 127: conda activate rl", permanent=True)
    assert core.phase("Pong") is Phase.BACKOFF


def away(core):
    return core.give(JobsSeen(core.now_s, core.memory.jobs.seen, "no controller"))


def test_a_shutdown_ends_without_the_jobs_of_a_cluster_that_does_not_answer():
    core = cluster(spec("Pong"), spec("mine"))
    runs(core)
    away(core)
    core.later(100.0)
    core.ask("shutdown")
    core.later(14.0).woke()
    assert core.told(facts.DaemonStopped) == []
    assert core.wake_at_s == core.now_s + 1.0
    assert len(of(core.to_wake(), commands.EndDaemon)) == 1
    (stopped,) = core.told(facts.DaemonStopped)
    assert stopped.why == (
        "the cluster does not answer (no controller): extralife ends without jobs that may still run: Pong (job 17), "
        "mine (job not known); the next supervisord asks them again to leave"
    )
    assert not of(core.woke(), commands.EndDaemon)


def test_a_signal_after_a_shutdown_ends_the_daemon_at_once():
    core = cluster()
    runs(core)
    core.ask("shutdown")
    core.later(100.0).woke()
    assert core.told(facts.DaemonStopped) == [], "the cluster answers, and the job still saves"
    assert len(of(core.give(Terminated(core.now_s, by="SIGTERM")), commands.EndDaemon)) == 1
    assert core.told(facts.DaemonStopped)[0].why.startswith(
        "SIGTERM: extralife does not wait for jobs that may still run: Pong"
    )


def test_the_next_daemon_asks_a_job_that_was_left_again_and_gives_it_its_whole_grace():
    core = cluster()
    runs(core)
    away(core)
    core.ask("shutdown")
    core.later(1000.0).woke()
    core.begin(("Pong", Survivor(core.token("Pong"), Survival.ALIVE, 1001, 77, 2001, 78)))
    assert of(core.last, commands.AskToLeave)
    assert not of(core.last, commands.KillTree)
    ended(core, code=75, asked="signal", ran_s=5.0)
    assert core.phase("Pong") in {Phase.QUEUED, Phase.STARTING}
    assert core.told(facts.Exited)[-1].cause == "stopped"


# --- nodes and the level ----------------------------------------------------------------------------------------------------

LEVELS = (Level("light", 2, 8, 64), Level("heavy", 4, 16, 128, launcher=JobResources(partition="h100", gpus=2)))
FOUR = ("Breakout", "Pong", "Qbert", "Seaquest")
RULE = LoadSettings(mode=CLIMB, dwell_s=1200.0, climb_s=1200.0, trial_s=1800.0, cool_s=3600.0)


class Climbing(Core):
    """A core that climbs, whose programs are jobs, each on a node of its own."""

    def __init__(self, **launcher):
        rungs = tuple(
            Rung(
                level,
                tuple(spec(n, digest=f"{n}-{level.name}", own_digest=f"{n}-own", job=NextJob(level.launcher)) for n in FOUR),
            )
            for level in LEVELS
        )
        made = settings(*rungs[0].programs, launcher=replace(ONE, **launcher), daemon=DaemonSettings(sample_period_s=3.0))
        super().__init__(replace(made, level=rungs[0].level, ladder=rungs, load=RULE))
        self.steps, self.number, self.asked, self.nodes = {}, 0, [], {}
        self.begin()

    def give(self, item):
        decision = super().give(item)
        self.asked += [(command.spec.name, command.spec.job.resources) for command in of(decision, commands.Spawn)]
        return decision

    def train(self, seconds):
        for _ in range(round(seconds / 10.0)):
            self.now_s += 10.0
            for name, program in sorted(self.state.programs.items()):
                if program.phase is Phase.STARTING and program.attempt.pid is None:
                    self.number += 1
                    runs(self, name, job=str(self.number), node=self.nodes.get(name, f"node-of-{name}"))
                elif program.phase is Phase.STOPPING:
                    self.ended(name, code=75)
            pace = {"light": 100, "heavy": 200}[self.state.level]
            trains = [name for name, program in self.state.live.items() if program.attempt.pid is not None]
            for name in trains:
                self.steps[name] = self.steps.get(name, 0) + 10 * pace
            self.give(Sampled(self.now_s, {name: self.sample(name, steps=self.steps[name]) for name in trains}))

    def until(self, level, most_s=4 * 3600.0):
        for _ in range(round(most_s / 60.0)):
            if self.state.level == level:
                return self
            self.train(60.0)
        raise AssertionError(f"still at {self.state.level}: {self.state.climb.said}")

    def lose(self, name, **more):
        job = self.state.cluster.jobs[name]
        return ended(self, name, ran_s=1.0, **{"state": "NODE_FAIL", "job": job.job, "node": job.node, **more})


def test_a_level_is_climbed_to_with_its_resources_and_a_lost_node_blames_no_level():
    core = Climbing(node_faults=2).until("heavy")
    core.train(120.0)
    assert {job.partition for _, job in core.asked[-4:]} == {"h100"}
    starts = [item.at_s for item in core.journal if isinstance(item.fact, facts.SpawnIntended)][-4:]
    new, moved = starts[:2], starts[2:]
    assert (new[0], moved[0]) == (new[1], moved[1]), "none waits until another is built: each has a node of its own"
    last = core.lose("Pong")
    assert [each.spec.job.resources.partition for each in of(last, commands.Spawn)] == ["h100"], (
        "its next job, at the same level"
    )
    core.train(60.0)
    core.lose("Pong")
    assert core.state.level == "heavy"
    assert [(fact.node, fact.weight) for fact in core.told(facts.NodeFaulted)] == [("node-of-Pong", 0.0)] * 2
    assert [fact.node for fact in core.told(facts.NodeExcluded)] == ["node-of-Pong"]


def test_one_fault_of_a_node_that_ends_several_jobs_is_one_on_its_record():
    core = Climbing(node_faults=2)
    core.nodes = dict.fromkeys(("Pong", "Qbert"), "a14")
    core.until("heavy").train(3600.0)
    for name in core.nodes:
        core.lose(name)
    assert [fact.new for fact in core.told(facts.NodeFaulted)] == [True, False]
    assert core.state.cluster.nodes["a14"].faults == 1
    assert core.told(facts.NodeExcluded) == []


def test_many_nodes_are_remembered_up_to_a_bound():
    core = cluster()
    record = core.state.cluster
    for number in range(KEPT + 5):
        node = f"n{number}"
        fault = facts.NodeFaulted("lost", node, "gpu", "Pong", "17")
        record = record.after(facts.Stamped(0, float(number), 0.0, "boot", fault))
    assert len(record.nodes) == KEPT
    assert "n0" not in record.nodes


def test_gpus_that_are_not_known_are_not_none():
    core = cluster()
    runs(core, gpus=None)
    ended(core, code=75, asked="time limit", ran_s=3600.0)
    usage = core.state.cluster.usage["lab"]
    assert (usage.job_s, usage.gpu_s, usage.unknown_s) == (3600.0, 0.0, 3600.0)


def test_programs_that_run_here_again_are_killed_as_ever_beside_the_record_of_a_cluster():
    core = Core(settings("Pong")).running("Pong")
    core.state = replace(core.state, cluster=replace(core.state.cluster, excluded={"a14": core.now_s + 1e6}))
    core.ask("stop", "Pong")
    assert of(core.to_wake(), commands.KillTree)


def test_a_section_that_launches_no_program_asks_for_no_gpu_of_one():
    assert (Launching().remote, Launching().asks_gpu(spec("Pong"))) == (False, "")
