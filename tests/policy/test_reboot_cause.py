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
SHUTDOWN = Line(0.1, "Reached target reboot.target - System Reboot.")


@pytest.mark.parametrize(
    ("traces", "kind", "why"),
    [
        # orderly
        (Traces(own_stop=True), "orderly", "extralife had ended in order"),
        (Traces(False, Journal.READ, (*QUIET, SHUTDOWN, Line(0.0, "Journal stopped"))), "orderly", SHUTDOWN.text),
        (Traces(False, Journal.READ, (Line(1.0, "System is powering down."),)), "orderly", "System is powering down."),
        (Traces(False, Journal.UNKNOWN, went_down=True), "orderly", "wtmp records a shutdown"),
        (Traces(own_stop=True, dumps=(DUMP.format("x"),)), "orderly", "extralife had ended in order"),
        # heat, although that end is an orderly one
        (kernel("thermal thermal_zone0: critical temperature reached (105 C), shutting down"), "thermal", "thermal_zone0"),
        (kernel("thermal thermal_zone0: acpitz: critical temperature reached", ago_s=9000.0), "thermal", "acpitz"),
        (
            Traces(
                True, Journal.READ, (Line(3, "reboot: HARDWARE PROTECTION shutdown (Temperature too high)", kernel=True), SHUTDOWN)
            ),
            "thermal", "HARDWARE PROTECTION",
        ),
        (Traces(False, reset_reason="thermal pin BP_THERMTRIP_L was tripped"), "thermal", "BP_THERMTRIP_L"),
        # panic, from a dump or the journal
        (dumped("Fatal exception in interrupt"), "panic", "Kernel panic - not syncing: Fatal exception in interrupt"),
        (kernel("BUG: unable to handle page fault for address: ffffb1a2c0a4f000"), "panic", "unable to handle page fault"),
        (kernel("BUG: kernel NULL pointer dereference, address: 0000000000000010"), "panic", "NULL pointer"),
        (kernel("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP"), "panic", "gen"),
        (kernel("kernel BUG at mm/slub.c:379!"), "panic", "mm/slub.c"),
        (kernel("Oops: 0002 [#1] SMP PTI"), "panic", "Oops"),
        (dumped("Out of memory: compulsory panic_on_oom"), "oom", "panic_on_oom"),
        (dumped("System is deadlocked on memory"), "oom", "deadlocked"),
        (dumped("hung_task: blocked tasks"), "hung", "hung_task"),
        (dumped("softlockup: hung tasks"), "hung", "softlockup"),
        (dumped("Hard LOCKUP"), "hung", "LOCKUP"),
        (dumped("Fatal machine check"), "hardware", "machine check"),
        (dumped("Fatal Machine check"), "hardware", "Machine check"),
        # the GPU
        (kernel("NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, GPU has fallen off the bus."), "gpu", "fallen off"),
        (kernel("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", ago_s=121.0), "power", "stops abruptly"),
        (kernel("NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python3, Ch 0000000a, intr"), "power", "stops abruptly"),
        # memory
        (kernel(*(OOM_KILL.format(pid) for pid in (7, 8, 9))), "oom", "Killed process 7"),
        (kernel(*(OOM_KILL.format(pid) for pid in (7, 8))), "power", "stops abruptly"),
        (kernel(*("Memory cgroup " + OOM_KILL.format(pid) for pid in (7, 8, 9))), "power", "stops abruptly"),
        (kernel(*(OOM_KILL.format(pid) for pid in (7, 8, 9)), ago_s=400.0), "power", "stops abruptly"),
        # the watchdog
        (Traces(False, watchdog=True), "watchdog", "the watchdog device"),
        (Traces(False, reset_reason="hardware watchdog timer expired"), "watchdog", "timer expired"),
        (Traces(True, reset_reason="thermal pin BP_THERMTRIP_L was tripped"), "orderly", "in order"),
        # hardware
        (Traces(False, reset_reason="an uncorrected error caused a data fabric sync flood event"), "hardware", "sync flood"),
        (Traces(False, Journal.READ, QUIET, reset_reason="software wrote 0x6 to reset control register"), "power", "stops"),
        # hung
        (kernel("INFO: task jbd2/sda1-8:312 blocked for more than 120 seconds."), "hung", "jbd2/sda1-8"),
        (kernel("watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python3:1234]"), "hung", "soft lockup"),
        (kernel("NMI watchdog: Watchdog detected hard LOCKUP on cpu 2"), "hung", "hard LOCKUP"),
        (kernel("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"), "hung", "rcu_preempt"),
        (kernel("rcu: INFO: rcu_sched self-detected stall on CPU"), "hung", "rcu_sched"),
        (kernel("INFO: task jbd2/sda1-8:312 blocked for more than 120 seconds.", ago_s=700.0), "power", "stops"),
        # nothing
        (Traces(False, Journal.READ, QUIET), "power", "the system's journal stops abruptly"),
        (Traces(False, Journal.READ), "power", "the system's journal stops abruptly"),
        (Traces(False, Journal.LOST), "power", "never written to disk"),
        (Traces(False), "", "no readable trace"),
        (Traces(), "", "no readable trace"),
    ],
)  # fmt: skip
def test_the_table(traces, kind, why):
    found = judge(traces)
    assert found.kind == kind
    assert why in found.why
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
    lines = [f"kernel BUG at mm/slub.c:{n}! {'x' * 300}" for n in range(9)]
    found = judge(kernel(*lines, "Kernel panic - not syncing: Fatal exception"))
    assert found.why == "Kernel panic - not syncing: Fatal exception"
    assert len(found.words) == 5
    assert max(map(len, found.words)) == 200
