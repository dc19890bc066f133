"""What readings of GPUs and host lead to: incidents told once, learned needs, vetoes; and nothing where they are missing."""

from dataclasses import replace

from core_kit import Core, facts, gpu, gpus, kinds, of, settings, spec

from supervisor.deciding import hardware
from supervisor.deciding.context import DecisionContext
from supervisor.model.lifecycle import Phase
from supervisor.model.settings import Level
from supervisor.policy.box import prechecks
from supervisor.policy.box.gate import MB
from supervisor.policy.box.prechecks import PrecheckSettings
from supervisor.policy.box.readings import Gpus, Host, Xid
from supervisor.reports.status_view import gpu_view, vetoes_view

HUNG = Gpus(None, "nvmlDeviceGetMemoryInfo has not answered for 6s", 6.0)


def test_the_memory_of_a_program_is_that_of_its_whole_tree():
    core = Core(settings("Pong")).running("Pong")
    pid = core.attempt("Pong").pid
    core.look(Pong={"pids": (4321, 4322), "cuda_bytes": 7})
    program, its = core.program("Pong"), core.settings.program("Pong")

    def held(*processes):
        memory = replace(core.memory, gpus=gpus(gpu(processes=processes)))
        return hardware.held_gpu_bytes(
            DecisionContext(core.settings, core.state, memory, core.now_s, 0.0, "b"), program, its
        )

    assert held((pid, 5), (4321, 6), (99, 100)) == 11
    assert held((4322, None), (4321, 6)) is None, "unknown is not zero"
    assert held((99, 100)) == 7, "its own report"


def test_a_driver_that_hangs_is_told_once_and_so_is_its_return():
    core = Core(settings("Pong")).running("Pong")
    core.see(gpus(gpu()))
    (unknown,) = of(core.later(1.0).see(HUNG), facts.GpusUnknown)
    assert "has not answered" in unknown.why
    assert unknown.hung_s == 6.0
    assert kinds(core.later(1.0).see(replace(HUNG, hung_s=7.0))) == []
    assert core.phase("Pong") is Phase.RUNNING
    assert gpu_view(core.memory.gpus, core.state) == {"known": False, "error": HUNG.error, "gpus": None, "count": 1}
    (known,) = of(core.later(8.0).see(gpus(gpu())), facts.GpusKnown)
    assert known.after_s == 9.0


def test_how_many_there_are_is_told_when_it_changes():
    core = Core(settings("Pong"))
    core.begin()
    assert kinds(core.see(gpus())) == [], "a box without a GPU has nothing to tell"
    (found,) = of(core.later(1.0).see(gpus(gpu(), gpu(1))), facts.GpusFound)
    assert (found.count, found.names) == (2, ("A100", "A100"))
    (fewer,) = of(core.later(1.0).see(gpus(gpu())), facts.GpusFound)
    assert fewer.why == "this box has 1 GPU (A100); it had 2 before"
    assert of(core.later(1.0).see(gpus()), facts.GpusFound)[0].why == "this box has no GPU; it had 1 before"
    assert core.state.gpus.most == 2


def test_a_gpu_that_falls_off_the_bus_is_told_and_so_is_its_return():
    core = Core(settings("Pong"))
    core.begin()
    core.see(gpus(gpu(), gpu(1)))
    lost = gpus(gpu(), gpu(1, lost="it has fallen off the bus"))
    decision = core.later(1.0).see(lost)
    assert kinds(decision) == ["GpuLost", "Vetoed"]
    assert (decision.facts[0].gpu, decision.facts[0].uuid) == (1, "GPU-1")
    assert kinds(core.later(1.0).see(replace(lost))) == []
    assert kinds(core.later(1.0).see(gpus(gpu(), gpu(1)))) == ["GpuBack"]
    assert core.state.gpus.lost == ()


def test_each_xid_is_told_and_the_same_again_not_for_ten_minutes():
    core = Core(settings("Pong"))
    core.begin()
    core.see(gpus(gpu()))
    told = core.later(1.0).see(gpus(gpu(), xids=(Xid(1, 0, 31), Xid(2, 5, 79))))
    assert [(fact.gpu, fact.uuid, fact.xid, fact.grave) for fact in of(told, facts.XidReported)] == [
        (0, "GPU-0", 31, False), (5, "", 79, True),
    ]  # fmt: skip
    assert [fact.rule for fact in of(told, facts.Vetoed)] == ["gpu_xid"]
    again = gpus(gpu(), xids=(Xid(2, 5, 79), Xid(3, 5, 79)))
    assert kinds(core.later(1.0).see(again)) == []
    assert kinds(core.later(600.0).see(gpus(gpu(), xids=(Xid(4, 5, 79),)))) == ["XidReported"]
    assert kinds(core.later(1.0).see(Gpus(None, "lost", xids=(Xid(5, 0, 48),)))) == [
        "GpusUnknown",
        "XidReported",
        "Vetoed",
    ] or ("gpu_xid" in core.state.vetoes)


def test_needs_are_learned_of_steady_training_and_seldom():
    core = Core(settings("Pong", spec("Qbert", gpu=1), slots=2))
    core.begin()
    core.see(gpus(gpu(), gpu(1)))
    core.running("Pong", "Qbert")
    pid = core.attempt("Pong").pid
    seen = gpus(gpu(free_mb=9, processes=((1, 5), (pid, 4_000 * MB))), gpu(1, free_mb=9, processes=None))
    core.look(Pong={"rss_bytes": 900 * MB}, Qbert={"cuda_bytes": 2_000 * MB})
    assert not of(core.see(seen), facts.NeedLearned), "it has just begun"
    core.later(61.0)
    told = core.see(replace(seen))
    assert [(fact.program, fact.gpu_bytes, fact.host_bytes) for fact in of(told, facts.NeedLearned)] == [
        ("Pong", 4_000 * MB, 900 * MB), ("Qbert", 2_000 * MB, None),
    ]  # fmt: skip
    assert told.facts[0].why == "holds 4,000 MiB of the GPU and 900 MiB of memory at level light"
    more = gpus(gpu(free_mb=9, processes=((pid, 6_000 * MB),)), gpu(1, free_mb=9))
    assert kinds(core.later(1.0).see(more)) == [], "not again within ten minutes"
    assert kinds(core.later(600.0).see(replace(more))) == ["NeedLearned"]
    assert core.program("Pong").at("light").gpu_bytes == 6_000 * MB
    slightly = gpus(gpu(free_mb=9, processes=((pid, 6_500 * MB),)), gpu(1, free_mb=9))
    assert kinds(core.later(601.0).see(slightly)) == [], "less than a tenth more"
    assert core.program("Pong").at("heavy").gpu_bytes is None


def test_needs_are_of_their_level_and_end_with_their_program():
    core = Core(settings(spec("Pong", own_digest="Pong"))).running("Pong")
    core.look(Pong={"rss_bytes": 900 * MB})
    core.later(61.0).see(host=Host())
    heavy = replace(core.settings.level, name="heavy")
    core.load(replace(core.settings, level=heavy, programs=(spec("Pong", digest="Pong-2", own_digest="Pong"),)))
    assert core.program("Pong").at("light").host_bytes == 900 * MB
    core.load(replace(core.settings, programs=(spec("Pong", digest="Pong-3", own_digest="Other"),)))
    assert core.program("Pong").by_level == {}


def test_a_program_that_left_the_config_teaches_nothing():
    core = Core(settings("Pong")).running("Pong")
    core.load(replace(core.settings, programs=()))
    core.later(100.0).see(gpus(gpu()))
    assert not core.told(facts.NeedLearned)


def test_a_veto_is_a_fact_bounds_the_ladder_and_is_lifted():
    core = Core(settings("Pong", prechecks=PrecheckSettings(clear_s=60.0)))
    core.begin()
    (veto,) = of(core.see(host=Host(disk_free_bytes=9 * MB)), facts.Vetoed)
    assert (veto.rule, veto.cap, veto.level) == ("disk", "light", "light")
    assert core.state.cap(("light", "medium")) == (0, "disk: only 9 MiB are free on the disk of the state directory")
    assert core.state.cap(("small", "large")) is None, "a veto of a level that is not there any more binds nobody"
    assert [(shown["cap"], shown["forbids"]) for shown in vetoes_view(core.state, core.settings)] == [("light", False)]
    (alone,) = vetoes_view(core.state, None)
    assert alone["forbids"], "without settings the levels above are not known"
    core.later(1.0).see(host=Host(disk_free_bytes=900 * MB))
    (lifted,) = of(core.later(60.0).see(host=Host(disk_free_bytes=901 * MB)), facts.VetoLifted)
    assert lifted.after_s == 61.0
    assert core.state.cap(("light",)) is None


def test_a_veto_survives_the_daemon_and_one_of_another_ladder_is_left_alone():
    core = Core(settings("Pong"))
    core.begin()
    core.see(host=Host(disk_free_bytes=9 * MB))
    core.later(1.0).begin()
    assert list(core.state.vetoes) == ["disk"]
    core.settings = replace(core.settings, level=replace(core.settings.level, name="other"))
    assert kinds(core.later(1.0).see(host=Host(disk_free_bytes=9 * MB))) == ["Vetoed"], "it holds on this ladder too"
    assert core.state.vetoes["disk"].cap == "other"


def test_what_our_own_workers_hold_is_not_in_the_way_and_may_be_unknown():
    core = Core(settings("Pong", "Qbert", spec("Idle", autostart=False), slots=3)).running("Pong", "Qbert")
    core.look(Pong={"cuda_bytes": 70_000 * MB, "rss_bytes": 1}, Qbert={})
    core.later(61.0).see(gpus(gpu(free_mb=9)))
    assert core.program("Pong").at("light").gpu_bytes == 70_000 * MB
    core.look(Pong={"cuda_bytes": None}, Qbert={"cuda_bytes": 5})
    assert not of(core.later(1.0).see(gpus(gpu(free_mb=9))), facts.Vetoed)
    core.load(replace(core.settings, programs=(*core.settings.programs, spec("New"))))
    assert not of(core.later(1.0).see(gpus(gpu(free_mb=9))), facts.Vetoed)


def test_what_the_prechecks_are_given(monkeypatch):
    """Whole: a byte of ours more or less, or a budget in other units, shows in no veto that a test could set up."""
    given = []
    monkeypatch.setattr(prechecks, "objections", lambda _, box: given.append(box) or ())
    core = Core(replace(settings("Pong", "Qbert"), level=Level("high", slots=2, memory_mb=70))).running("Pong", "Qbert")
    core.look(Pong={"cuda_bytes": 3 * MB, "rss_bytes": 40 * MB}, Qbert={"cuda_bytes": 5 * MB, "rss_bytes": 600 * MB})
    core.later(61.0).see(seen := gpus(gpu(), xids=(Xid(1, 0, 31),)), host := Host(available_bytes=9 * MB))
    assert given[-1] == prechecks.BoxReadings(
        (prechecks.Rung("high", 2, 70 * 10**6),), 0, seen, host,
        (prechecks.Need(0, (3 * MB,), (40 * MB,)), prechecks.Need(0, (5 * MB,), (600 * MB,))),
        {0: 8 * MB}, 640 * MB, (31,),
    )  # fmt: skip


def test_gpus_as_people_see_them():
    core = Core(settings("Pong"))
    core.begin()
    assert gpu_view(None, core.state) == {"known": False, "error": "", "gpus": None, "count": None}
    core.see(gpus(gpu(free_mb=9, reasons=("idle",)), gpu(1)))
    shown = gpu_view(core.memory.gpus, core.state)
    assert shown["known"]
    assert [(each["index"], each["reasons"]) for each in shown["gpus"]] == [(0, ["idle"]), (1, None)]
    assert gpu_view(Gpus((), "no driver", absent=True), core.state)["error"] == ""
