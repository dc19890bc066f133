"""A busy night on one box, told by hand: nothing in it is random, and its last state has something for every page.

A change to this story changes many recorded pages, so leave it as it is unless a new page needs a new event.
"""

from inside import Host

CONFIG = """\
[daemon]
state_dir = "DIRECTORY/state"
runtime_dir = "DIRECTORY/run"
sample_period_s = 10.0

[levels.light]
slots = 3
num_envs = 32
batch_size = 512
threads = 1
[levels.medium]
slots = 4
num_envs = 64
batch_size = 1024
[levels.heavy]
slots = 5
num_envs = 128

[load]
mode = "climb"
climb_s = 600.0
trial_s = 900.0
dwell_s = 1800.0
review_s = 300.0

[training]
episodes = 25_000
replay_size = 100_000

[divergence]
rollbacks = 2

[health]
on_exploding = "rollback"
on_collapsed = "tell"
collapsed_for_s = 300.0

[backup]
calendar = "daily 12:00"
keep = 2

[cost]
usd_per_hour = 1.29

[alerts]
command = ["/bin/false"]
at_most_per_h = 6
same_within_s = 1800.0

[program.Pong]
seeds = [4, 6]
priority = 10

[program.Breakout]
algo = "ppo"
priority = 20

[program.Seaquest]
priority = 30

[program.Qbert]
priority = 40

[program.Freeway]
priority = 50

[program.Enduro]
priority = 60

[program.Asterix]
priority = 1
autostart = false
min_free_mb = 60_000
gate_timeout_s = 3600.0

[program.script]
command = ["/bin/sh", "-c", "exec sleep 1000"]
progress = "log"
priority = 5
"""

FIGURES = {
    "Pong-s4": {
        "frames": 4_000_000, "updates": 61_000, "mean_return": 18.25, "best_return": 19.5, "first_return": -20.5,
        "best_spread": 1.5, "loss": 0.0123, "q_mean": 1.75, "q_max_abs": 3.5, "q_bound": 100.0, "grad_norm": 0.75,
        "num_envs": 32, "batch_size": 512, "rss_bytes": 3_500_000_000, "cuda_bytes": 9_000_000_000, "test_return": 19.0,
        "memory_bytes": 4_000_000_000, "ckpt_write_s": 0.25,
        "share_acting": 0.25, "share_learning": 0.625, "share_waiting": 0.125,
        "pressure": (("cpu some", 12.5), ("memory full", 0.5), ("io some", 1.25)),
    },
    "Pong-s6": {"mean_return": -3.5, "best_return": 1.0, "loss": 0.25, "batch_size": 512, "num_envs": 32},
    "Breakout": {
        "mean_return": 212.5, "best_return": 400.0, "loss": 0.125, "entropy": 1.25, "entropy_share": 0.9,
        "batch_size": 512, "num_envs": 32, "rss_bytes": 2_000_000_000,
    },
    "Seaquest": {"mean_return": 1400.0, "loss": 0.5, "batch_size": 512, "q_max_abs": 50.0, "q_bound": 100.0},
}  # fmt: skip
DIVERGED = "workers: diverged: loss is nan"


def busy_night(where):
    """The box at 5 in the morning."""
    host = Host(15, where, CONFIG)
    host.figures = {name: dict(figures) for name, figures in FIGURES.items()}
    host.show_gpus()
    host.start()
    host.run(1800.0)
    _evening(host)
    _workers_fail(host)
    _workers_stall(host)
    _disks_fail(host)
    _hosts_fail(host)
    _records_fail(host)
    _operator(host)
    _morning(host)
    return host


def _evening(host):
    """It climbs; the first backup is made; the first alert is not delivered at once."""
    host.operator("backup", text="before the night")
    host.run(60.0)
    host.target_error = "/bin/false ended with exit code 1"
    host.run(3600.0)


def _workers_fail(host):
    """Killed, a segmentation fault, out of memory, diverged, an exploded network, wrong arguments, done."""
    host.ends("script", code=78, last_lines=("train.py: error: no such file: data.bin",), after_s=60.0)
    host.ends("Pong-s4", signal=9, after_s=120.0)
    host.ends("Breakout", signal=11, last_lines=("Fatal Python error: Segmentation fault",), after_s=120.0)
    host.ends("Breakout", code=1, last_lines=("torch.OutOfMemoryError: CUDA out of memory",), batch_size=512, after_s=120.0)
    host.ends("Seaquest", code=65, last_lines=(DIVERGED,), after_s=300.0)
    host.worker("Seaquest").figures |= {"q_max_abs": 5e6}
    host.run(300.0)
    host.ends("Seaquest", code=0, after_s=60.0)
    host.ends("Pong-s6", signal=9, oom_kills=(0, 1), oom_own=True, memory_max_bytes=8 * 2**30, batch_size=512, after_s=300.0)


def _workers_stall(host):
    """A call that never returns, a lock that is never given back, a process that somebody stopped, a slow one."""
    host.worker("Pong-s4").stick(host.now_s)
    host.run(300.0)
    found = host.worker("Breakout")
    found.stick(host.now_s)
    found.live_at_s = host.now_s
    host.run(300.0)
    found = host.worker("Pong-s6")
    found.stick(host.now_s)
    found.state = "T"
    host.run(120.0)
    found = host.worker("Breakout")
    found.figures |= {"entropy_share": 0.001, "mean_return": 2.0}
    host.run(600.0)
    found.figures |= {"entropy_share": 0.9, "mean_return": 212.5}
    host.run(300.0)
    host.worker("Pong-s6").pace = 0.2
    host.run(600.0)
    host.worker("Pong-s6").pace = 1.0
    host.run(300.0)


def _disks_fail(host):
    """A damaged checkpoint, one that kills whoever loads it, a full disk, a program that dies at each start."""
    pong, breakout = host.disks["Pong-s4"], host.disks["Breakout"]
    host.worker("Pong-s4")
    pong.damage[pong.newest()] = "tensors.safetensors does not match its digest"
    host.ends("Pong-s4", signal=9, after_s=120.0)
    pong.full = True
    host.run(900.0)
    pong.full = False
    host.run(300.0)
    host.worker("Breakout")
    breakout.poison.update(range(breakout.newest(), breakout.newest() + 3000))
    host.ends("Breakout", signal=11, after_s=900.0)
    breakout.poison.clear()
    host.doomed.add("Qbert")
    host.ends("Qbert", code=1, last_lines=("OSError: disk full",), after_s=240.0)
    host.doomed.clear()
    host.run(600.0)
    host.fails_to_start("Pong-s6")
    host.ends("Pong-s6", signal=9, after_s=120.0)


def _hosts_fail(host):
    """A power cut, a kernel panic, a shutdown in order, a daemon that is killed, one that is stopped, a suspended host."""
    host.reboot(95.0, "power", "journal ends in the middle")
    host.run(3600.0)
    host.reboot(40.0, "panic", "Kernel panic - not syncing: Fatal exception in interrupt")
    host.run(1800.0)
    host.turn_off(300.0)
    host.run(1800.0)
    host.kill_daemon()
    host.run(120.0)
    host.pause_daemon(120.0)
    host.run(300.0)
    host.suspend_host(1200.0)
    host.run(600.0)


def _records_fail(host):
    """The journal cannot be written, is removed, is damaged; the clock steps; directories go; NVML hangs, a GPU is lost."""
    host.break_journal(seconds=90.0)
    host.run(120.0)
    host.journal_moved()
    host.ends("Pong-s4", signal=9, after_s=120.0)
    host.snapshot()
    host.run(60.0)
    host.salvage("row 17: CRC does not match", 2)
    host.run(120.0)
    host.set_clock(90.0)
    host.run(60.0)
    host.lose("runtime directory", "run", "missing", restorable=True)
    host.run(10.0)
    host.lose("runtime directory", "run", "missing", restorable=True, error="Permission denied")
    host.run(60.0)
    host.find_all()
    host.run(60.0)
    host.hang_gpus()
    host.run(120.0)
    host.show_gpus(lost="it has fallen off the bus", xid=79)
    host.run(300.0)
    host.show_gpus(hot_c=91.0)
    host.run(300.0)


def _operator(host):
    """Stops, starts, restarts, signals, pins, goes back to a backup, changes the configuration, and makes a mistake in it."""
    host.operator("stop", "Enduro")
    host.operator("restart", "Pong-s6")
    host.run(60.0)
    host.operator("signal", "Pong-s4")
    host.operator("pin", "medium", for_s=4 * 3600.0)
    host.run(120.0)
    (backup, *_) = host.backups
    host.operator("rollback", "Pong-s4", text=backup)
    host.run(300.0)
    host.backup_error = "the disk is full: make room, or lower backup.keep"
    host.calendar()
    host.run(60.0)
    host.backup_error = ""
    host.operator("backup", "Pong-s4", "Pong-s6", text="after the rollback")
    host.run(60.0)
    host.refuse_config(f"{host.config_file}:9: [levels.heavy] slots must be at least 1, not 0")
    host.run(60.0)
    host.configure(
        CONFIG.replace("usd_per_hour = 1.29", "usd_per_hour = 1.49").replace(
            "[program.Qbert]\n", "[program.Qbert]\nseed = 2\n"
        )
    )
    host.update()
    host.run(120.0)
    host.target_error = ""
    host.run(900.0)


def _morning(host):
    """What is still wrong when somebody looks: a fault in the configuration, a lost lock, a hot GPU, a program that waits."""
    host.refuse_config(f"{host.config_file}:12: level.slots must be at least 1, not 0")
    host.lose("log directory", "state/programs/Pong-s4", "replaced", error="", consequence="its logs are not kept")
    host.ends("Pong-s6", code=78, last_lines=("workers: error: argument --seed: not a number",), after_s=5.0)
    host.operator("start", "Asterix")
    host.run(60.0)
    host.doomed.add("script")
    host.ends("script", code=1, after_s=150.0)
    host.doomed.clear()
    host.ends("Breakout", signal=9, after_s=20.0)
    host.target_error = "/bin/false ended with exit code 1"
    host.run(20.0)
    for program, game, algo, seed, scores in (
        ("Pong-s4", "Pong", "dqn", 4, [19.0, 20.0, 18.0]),
        ("Pong-s6", "Pong", "dqn", 6, [-3.0, 5.0, 1.0]),
        ("Breakout", "Breakout", "ppo", 1, [211.0, 400.0]),
    ):
        host.write_results(program, game, algo, seed, scores)
    for name in host.names:
        directory = host.state_dir / "programs" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "stdout.log").write_text("".join(f"{name} line {number}\n" for number in range(1, 201)))
        (directory / "stderr.log").write_text(f"{name}: a warning\n")
    (host.state_dir / "extralife.log").write_text('{"event": "serving", "level": "info"}\n' * 40)
