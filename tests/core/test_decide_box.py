"""Another box: its own record of levels and reboots begins, and everything resumes all the same."""

from core_kit import Core, commands, facts, kinds, of, settings
from test_decide_levels import climbed

from supervisor.model.fold import fold_all
from supervisor.policy.box.readings import Gpu, Gpus
from supervisor.reports.status_view import box_view

ALPHA = {"machine": "m1", "hostname": "alpha", "product": "p1"}
BETA = {"machine": "m2", "hostname": "beta", "product": "p2"}


def on(box, *names):
    core = Core(settings(*names))
    core.begin(box=box)
    return core.running(*names)


def shown(core):
    return box_view(core.state, now_s=core.now_s, boot_at_s=None)["box"]


def test_the_first_box_is_on_record():
    core = on(ALPHA, "Pong")
    fact = core.told(facts.BoxIdentified)[0]
    assert (fact.why, fact.another) == ("this box is alpha", False)
    core.begin(core.survivor("Pong", "alive"), box=ALPHA)
    assert len(core.told(facts.BoxIdentified)) == 1, "nothing new: nothing told"
    assert shown(core)["former"] == []


def test_a_copied_box_begins_its_own_record():
    core = on(ALPHA, "Pong")
    core.later(600.0).reboot("boot-2", box=ALPHA, up_s=600.0)
    core.spawned("Pong")
    core.see(Gpus((Gpu(0, "GPU-0", "A100"),)))
    before = core.state
    decision = core.later(600.0).reboot("boot-3", box=BETA, steps={"Pong": 900}, up_s=600.0, kind="panic")
    assert kinds(decision)[:3] == ["HostRebooted", "BoxIdentified", "DaemonStarted"]
    rebooted = core.told(facts.HostRebooted)[-1]
    assert (rebooted.cause, rebooted.end) == ("moved", "")
    assert rebooted.why.startswith(
        "this is another box than alpha (the mainboard's UUID, the machine-id and the host name changed)"
    )
    state = core.state
    assert (state.reboots, state.reboots_total, state.gpus.most) == ((), 0, 0)
    assert all(record.up_s == 0.0 and record.reboots == 0 for record in state.levels.values())
    assert state.box.hostname == "beta"
    (former,) = state.former_boxes
    assert (former.hostname, former.reboots) == ("alpha", 1)
    assert former.levels["light"].reboots == before.levels["light"].reboots == 1
    assert former.levels["light"].up_s > before.levels["light"].up_s, "with what it ran until it was copied"
    assert list(state.live) == ["Pong"], "it resumes all the same"
    assert of(decision, commands.AlertReboot)[0].resuming == ("Pong",)
    assert shown(core)["former"][0]["hostname"] == "alpha"
    assert fold_all(core.journal) == core.state


def test_what_was_measured_and_counted_on_another_box_is_forgotten():
    """Memory that programs hold, batches that were lowered for want of it, kills that its kernel has counted."""
    core = on(ALPHA, "Pong")
    core.later(100.0).look(Pong={"rss_bytes": 10**9})
    core.see(Gpus((Gpu(0, "GPU-0", "A100"),)))
    core.ended("Pong", signal=9, batch_size=64, oom_kills=(0, 1))
    assert core.program("Pong").at("light").host_bytes
    assert (core.program("Pong").at("light").batch_size, core.state.oom_kills) == (32, 1)
    core.later(600.0).reboot("boot-2", box=BETA)
    assert (core.program("Pong").by_level, core.state.oom_kills) == ({}, None)


def test_a_copied_box_climbs_from_its_own_beginning():
    core = climbed("wide")
    core.begin(*[core.survivor(name, "alive") for name in core.state.live], box=ALPHA)
    core.train(700.0)
    core.later(60.0).reboot("boot-2", box=BETA, cause="unclean", up_s=5000.0, last_sign_s=core.now_s)
    assert core.state.level == "light"
    assert not core.told(facts.RebootJudged), "it was no power cut"
    assert len(core.told(facts.LadderLaid)) == 2
    core.train(20.0)
    core.later(5.0).reboot("boot-3", box=BETA, cause="unclean", up_s=20.0, last_sign_s=core.now_s, down_s=5.0)
    assert core.told(facts.RebootJudged)[-1].level == "light", "wide was left by the other box"


def test_a_renamed_box_is_the_same():
    core = on(ALPHA, "Pong")
    core.later(60.0).reboot("boot-2", box={**ALPHA, "hostname": "gamma"})
    fact = core.told(facts.BoxIdentified)[-1]
    assert (fact.why, fact.another) == ("the same box, now gamma: the host name changed", False)
    assert core.told(facts.HostRebooted)[-1].cause == "unclean"
    assert (core.state.reboots_total, core.state.box.hostname, core.state.former_boxes) == (1, "gamma", ())
    assert core.state.box.since_s == 0.0


def test_more_is_learnt_of_a_box_and_nothing_is_forgotten():
    core = on({"hostname": "alpha"}, "Pong")
    core.begin(core.survivor("Pong", "alive"), box={"machine": "m1"})
    assert core.told(facts.BoxIdentified)[-1].why == "the same box, alpha: more of its hardware is known"
    assert core.state.box.witnesses == {"hostname": "alpha", "machine": "m1"}
    nameless = on({"machine": "m1"}, "Pong")
    assert nameless.told(facts.BoxIdentified)[0].why == "this box is a box without a name"
    nameless.later(9.0).reboot("boot-2", box={"machine": "m1"})
    nameless.later(9.0).reboot("boot-3", box={"machine": "m2", "hardware": "x"})
    nameless.later(9.0).reboot("boot-4", box={"machine": "m3", "hardware": "y"})
    assert nameless.state.former_boxes == (), "m2 has not outlived a reboot"


def test_another_image_in_the_same_boot_is_the_same_box():
    """A container that is made anew on its host, with a machine-id and a name of its own."""
    core = on({"machine": "m1", "hostname": "a1"}, "Pong")
    core.later(9.0).reboot("boot-1", box={"machine": "m1", "hostname": "a1"})
    core.later(9.0).reboot("boot-1", box={"machine": "m2", "hostname": "a2"})
    assert not core.told(facts.BoxIdentified)[-1].another


def test_a_new_name_of_a_container_is_no_news():
    core = on({"machine": "m1", "hostname": "a1"}, "Pong")
    core.later(9.0).reboot("boot-1", box={"machine": "m1", "hostname": "a2"}, kind="container")
    assert len(core.told(facts.BoxIdentified)) == 1
