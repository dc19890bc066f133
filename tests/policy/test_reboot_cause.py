"""The table of the rule, with lines as kernels, systemd and NVIDIA's driver write them."""

import pytest

from supervisor.policy.box import reboot_cause as rule
from supervisor.policy.box.reboot_cause import Journal, Line, Traces, judge

QUIET = (Line(60.0, "Started session-3.scope - Session 3 of User anna."), Line(0.0, "Starting logrotate.service ..."))
DUMP = """Panic#1 Part1
<4>[ 8122.114302] CPU: 3 PID: 0 Comm: swapper/3 Tainted: P           OE      6.1.0-18-amd64 #1
<0>[ 8122.120001] Kernel panic - not syncing: {}
<0>[ 8122.130001] Kernel Offset: 0x1ac00000 from 0xffffffff81000000
"""


def kernel(*texts, ago_s=5.0):
    lines = tuple(Line(ago_s, text, kernel=True) for text in texts)
    return Traces(own_stop=False, journal=Journal.READ, lines=(*QUIET, *lines))


def dumped(text):
    return Traces(own_stop=False, journal=Journal.READ, lines=QUIET, dumps=(DUMP.format(text),))


OOM_KILL = "Out of memory: Killed process {} (python3) total-vm:14201332kB, anon-rss:9120044kB, file-rss:0kB, UID:997"
ABRUPT = "the system's journal stops abruptly and shows no trouble before that"
SHUTDOWN = Line(0.1, "Reached target reboot.target - System Reboot.")


@pytest.mark.parametrize(
    ("traces", "kind", "why"),
    [
        # orderly
        (Traces(own_stop=True), "orderly", "extralife was ending in order"),
        (Traces(False, Journal.READ, (*QUIET, SHUTDOWN, Line(0.0, "Journal stopped"))), "orderly", "Reached target reboot.target - System Reboot."),
        (Traces(False, Journal.READ, (Line(1.0, "System is powering down."),)), "orderly", "System is powering down."),
        (Traces(False, Journal.UNKNOWN, went_down=True), "orderly", "wtmp records a shutdown"),
        (Traces(own_stop=True, dumps=(DUMP.format("x"),)), "orderly", "extralife was ending in order"),
        # heat, although that end is an orderly one
        (kernel("thermal thermal_zone0: critical temperature reached (105 C), shutting down"), "thermal", "thermal thermal_zone0: critical temperature reached (105 C), shutting down"),
        (kernel("thermal thermal_zone0: acpitz: critical temperature reached", ago_s=9000.0), "thermal", "thermal thermal_zone0: acpitz: critical temperature reached"),
        (
            Traces(
                True, Journal.READ, (Line(3, "reboot: HARDWARE PROTECTION shutdown (Temperature too high)", kernel=True), SHUTDOWN)
            ),
            "thermal", "reboot: HARDWARE PROTECTION shutdown (Temperature too high)",
        ),
        (Traces(False, reset_reason="thermal pin BP_THERMTRIP_L was tripped"), "thermal", "thermal pin BP_THERMTRIP_L was tripped"),
        # panic, from a dump or the journal
        (dumped("Fatal exception in interrupt"), "panic", "Kernel panic - not syncing: Fatal exception in interrupt"),
        (kernel("BUG: unable to handle page fault for address: ffffb1a2c0a4f000"), "panic", "BUG: unable to handle page fault for address: ffffb1a2c0a4f000"),
        (kernel("BUG: kernel NULL pointer dereference, address: 0000000000000010"), "panic", "BUG: kernel NULL pointer dereference, address: 0000000000000010"),
        (kernel("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP"), "panic", "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP"),
        (kernel("kernel BUG at mm/slub.c:379!"), "panic", "kernel BUG at mm/slub.c:379!"),
        (kernel("Oops: 0002 [#1] SMP PTI"), "panic", "Oops: 0002 [#1] SMP PTI"),
        (dumped("Out of memory: compulsory panic_on_oom"), "oom", "Kernel panic - not syncing: Out of memory: compulsory panic_on_oom"),
        (dumped("System is deadlocked on memory"), "oom", "Kernel panic - not syncing: System is deadlocked on memory"),
        (dumped("hung_task: blocked tasks"), "hung", "Kernel panic - not syncing: hung_task: blocked tasks"),
        (dumped("softlockup: hung tasks"), "hung", "Kernel panic - not syncing: softlockup: hung tasks"),
        (dumped("Hard LOCKUP"), "hung", "Kernel panic - not syncing: Hard LOCKUP"),
        (dumped("Fatal machine check"), "hardware", "Kernel panic - not syncing: Fatal machine check"),
        (dumped("Fatal Machine check"), "hardware", "Kernel panic - not syncing: Fatal Machine check"),
        # the GPU
        (kernel("NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, GPU has fallen off the bus."), "gpu", "NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, GPU has fallen off the bus."),
        (kernel("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", ago_s=121.0), "power", ABRUPT),
        (kernel("NVRM: Xid (PCI:0000:01:00): 48, DBE", ago_s=120.0), "gpu", "NVRM: Xid (PCI:0000:01:00): 48, DBE"),
        (kernel("NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python3, Ch 0000000a, intr"), "power", ABRUPT),
        # memory
        (kernel(*(OOM_KILL.format(pid) for pid in (7, 8, 9))), "oom", "Out of memory: Killed process 7 (python3) total-vm:14201332kB, anon-rss:9120044kB, file-rss:0kB, UID:997"),
        (kernel(*(OOM_KILL.format(pid) for pid in (7, 8))), "power", ABRUPT),
        (kernel(*("Memory cgroup " + OOM_KILL.format(pid) for pid in (7, 8, 9))), "power", ABRUPT),
        (kernel(*(OOM_KILL.format(pid) for pid in (7, 8, 9)), ago_s=300.1), "power", ABRUPT),
        (kernel(*(OOM_KILL.format(pid) for pid in (7, 8, 9)), ago_s=300.0), "oom", OOM_KILL.format(7)),
        # the watchdog
        (Traces(False, watchdog=True), "watchdog", "the watchdog device reports that it reset the box"),
        (Traces(False, reset_reason="hardware watchdog timer expired"), "watchdog", "hardware watchdog timer expired"),
        (Traces(True, reset_reason="thermal pin BP_THERMTRIP_L was tripped"), "orderly", "extralife was ending in order"),
        # hardware
        (Traces(False, reset_reason="an uncorrected error caused a data fabric sync flood event"), "hardware", "an uncorrected error caused a data fabric sync flood event"),
        (Traces(False, Journal.READ, QUIET, reset_reason="software wrote 0x6 to reset control register"), "power", ABRUPT),
        # hung
        (kernel("INFO: task jbd2/sda1-8:312 blocked for more than 120 seconds."), "hung", "INFO: task jbd2/sda1-8:312 blocked for more than 120 seconds."),
        (kernel("watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python3:1234]"), "hung", "watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python3:1234]"),
        (kernel("NMI watchdog: Watchdog detected hard LOCKUP on cpu 2"), "hung", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 2"),
        (kernel("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"), "hung", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
        (kernel("rcu: INFO: rcu_sched self-detected stall on CPU"), "hung", "rcu: INFO: rcu_sched self-detected stall on CPU"),
        (kernel("INFO: task jbd2/sda1-8:312 blocked for more than 120 seconds.", ago_s=600.1), "power", ABRUPT),
        (kernel("INFO: task a:1 blocked for more than 120 seconds.", ago_s=600.0), "hung", "INFO: task a:1 blocked for more than 120 seconds."),
        # nothing
        (Traces(False, Journal.READ, QUIET), "power", ABRUPT),
        (Traces(False, Journal.READ), "power", ABRUPT),
        (Traces(False, Journal.LOST), "power", "the system's journal of that boot was never written to disk"),
        (Traces(False), "", "no readable trace of the reason"),
        (Traces(), "", "no readable trace of the reason"),
    ],
)  # fmt: skip
def test_the_table(traces, kind, why):
    found = judge(traces)
    assert (found.kind, found.why) == (kind, why)
    assert found.kind in rule.WORDS


def test_what_others_write_is_not_the_kernels_word():
    said = tuple(
        Line(1.0, text) for text in ("Kernel panic - not syncing: x", "thermal_zone0: critical temperature reached")
    )
    assert judge(Traces(False, Journal.READ, said)).kind == "power"
    assert judge(Traces(False, Journal.READ, (Line(1.0, SHUTDOWN.text, kernel=True),))).kind == "power"


def test_a_watchdog_that_bit_tells_what_was_stuck_before():
    traces = kernel("watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python3:1234]")
    found = judge(Traces(False, Journal.READ, traces.lines, watchdog=True))
    assert found.kind == "watchdog"
    assert found.words == ("watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python3:1234]",)


def test_its_words_are_few_and_short_and_the_panic_comes_first():
    lines = [f"BUG: unable to handle page fault {n} {'x' * 300}" for n in range(9)]
    found = judge(kernel(*lines, "Kernel panic - not syncing: Fatal exception"))
    assert found.why == "Kernel panic - not syncing: Fatal exception"
    assert len(found.words) == 5
    assert max(map(len, found.words)) == 200
