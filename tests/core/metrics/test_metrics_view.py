"""Metrics: what is in them, that nothing unknown is, and that Prometheus' own library reads every byte."""

import math
import re
from dataclasses import replace

import pytest
from core_kit import Core, gpu, gpus, settings
from fakes import FakeSources
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from supervisor.features.alerts.record import AlertRecord, Failing
from supervisor.features.backups.record import BackupEnd, BackupRecord
from supervisor.features.metrics.exposition import OPENMETRICS, TEXT, Family, encoded, wanted
from supervisor.features.metrics.families import _named, metrics_view
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory, Trouble
from supervisor.model.state import LevelRecord
from supervisor.policy.box.readings import Gpus, Host
from supervisor.policy.upkeep.cost import CostSettings
from workers.contract import FIGURES


def sources(core, *, dead=False, **more):
    memory = Memory() if dead else core.memory
    found = {"settings": core.settings, "memory": memory, "now_s": core.now_s, "alive": not dead} | more
    return FakeSources(core.state, version=None if dead else "0.1.0", worst_gap_s=None if dead else 0.2, **found)


def read(found, content_type=OPENMETRICS):
    """{(name, labels): value} as the library reads it."""
    text = encoded(metrics_view(found), content_type).decode()
    families = list((open_metrics if content_type == OPENMETRICS else plain_text)(text))
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


@pytest.fixture
def core():
    made = Core(settings("Pong", "Breakout", cost=CostSettings(2.0))).running("Pong", "Breakout")
    made.look(Pong={"steps": 4000, "ckpt_step": 3500, "ckpt_count": 1, "ckpt_at_s": 0.5, "steps_per_s": 250.0, "loss": 0.25})
    return made


def test_a_program_and_its_figures(core):
    found = read(sources(core))
    assert found["extralife_program_up", "Pong"] == 1.0
    assert found["extralife_program_state", "Pong"] == [*Phase].index(Phase.RUNNING)
    assert found["extralife_program_position_steps", "Pong"] == 4000.0
    assert found["extralife_program_checkpoint_position_steps", "Pong"] == 3500.0
    assert found["extralife_program_checkpoint_age_seconds", "Pong"] == core.now_s - 0.5
    assert found["extralife_program_steps_per_second", "Pong"] == 250.0
    assert found["extralife_program_loss", "Pong"] == 0.25
    assert read(sources(core, now_s=core.now_s + 7.0))["extralife_program_progress_age_seconds", "Pong"] == pytest.approx(
        7.0 + found["extralife_program_progress_age_seconds", "Pong"]
    )
    assert found["extralife_program_attempts_total", "Breakout"] == 1.0
    assert found["extralife_price_dollars_per_hour",] == 2.0


def test_both_formats_say_the_same(core):
    assert read(sources(core), TEXT) == read(sources(core))


def test_unknown_is_absent(core):
    found = read(sources(core))
    assert ("extralife_program_mean_return", "Pong") not in found
    assert ("extralife_program_remaining_seconds", "Pong") not in found
    assert not [name for name, *_ in found if name.startswith(("extralife_host_memory", "extralife_gpu_"))]
    assert all(math.isfinite(value) for value in found.values())


def test_a_value_that_is_no_number_is_absent():
    family = Family("extralife_x", "gauge", "help", samples=[((), math.nan), ((), math.inf)])
    assert encoded([family], TEXT) == b"# HELP extralife_x help\n# TYPE extralife_x gauge\n"


def test_a_dead_daemon_is_down_and_its_journal_goes_on_to_speak(core):
    core.ended("Pong", code=1, steps=4200)
    found = read(sources(core, dead=True))
    assert found["extralife_up",] == 0.0
    assert found["extralife_program_attempt_ends_total", "Pong", "crash"] == 1.0
    assert found["extralife_program_environment_steps_total", "Pong"] == 4200.0
    assert ("extralife_program_up", "Pong") not in found
    assert not [name for name, *_ in found if name.startswith("extralife_daemon_")]


def test_a_program_that_waits_says_for_how_long(core):
    core.ended("Pong", code=1, steps=4200)
    core.spawned("Pong")
    core.ended("Pong", code=1)
    assert core.phase("Pong") is Phase.BACKOFF
    found = read(sources(core))
    assert found["extralife_program_next_start_seconds", "Pong"] > 0.0
    assert found["extralife_program_restarts_total", "Pong"] == 2.0


def test_the_box(core):
    host = Host(memory_bytes=64 * 2**30, available_bytes=2**30, memory_full=12.5, cores=8)
    lost = gpu(1, lost="fell off the bus", free_mb=None)
    memory = replace(
        core.memory, host=host, gpus=gpus(gpu(0, free_mb=1000, utilisation=50.0, reasons=("hw_slowdown",)), lost)
    )
    memory = replace(memory, boot_at_s=core.now_s - 60.0)
    state = replace(core.state, reboots_by_cause={"unclean": 3}, levels={"light": LevelRecord(7200.0, 2)})
    core.state = state
    found = read(sources(core, memory=memory))
    assert found["extralife_host_available_bytes",] == 2**30
    assert found["extralife_host_memory_full_ratio",] == 0.125
    assert found["extralife_host_cpu_cores",] == 8.0
    assert found["extralife_host_boot_time_seconds",] == 1_800_000_000.0 - 60.0
    assert (found["extralife_gpu_up", "0"], found["extralife_gpu_up", "1"]) == (1.0, 0.0)
    assert found["extralife_gpu_utilisation_ratio", "0"] == 0.5
    assert found["extralife_gpu_clocks_held", "0"] == 1.0
    assert found["extralife_gpu_used_bytes", "0"] == 79_000 * 2**20
    assert ("extralife_gpu_used_bytes", "1") not in found
    assert found["extralife_gpu_info", "0", "GPU-0", "A100"] == 1.0
    assert [found["extralife_host_reboots_total", cause] for cause in ("orderly", "operator", "unclean")] == [0.0, 0.0, 3.0]
    assert found["extralife_level_mtbf_seconds", "light"] == pytest.approx(3600.0, abs=1.0)
    assert found["extralife_level_in_force", "light"] == 1.0


def test_gpus_that_cannot_be_read(core):
    found = read(sources(core, memory=replace(core.memory, gpus=Gpus(None, error="hangs"))))
    assert found["extralife_gpus_readable",] == 0.0
    assert ("extralife_gpu_up", "0") not in found


def test_the_record_itself(core):
    core.state = replace(
        core.state, gaps=1, alerts=AlertRecord(total=7, failing={"mail": Failing("refused", 0.0)}),
        backups=BackupRecord(ends=(BackupEnd("b", ok=False, text="no space"),)),
    )  # fmt: skip
    found = read(sources(core, memory=replace(core.memory, trouble=Trouble(0.0, 0.0, "disk full"))))
    assert found["extralife_journal_writable",] == 0.0
    assert found["extralife_journal_damages_total",] == 1.0
    assert found["extralife_alerts_total",] == 7.0
    assert found["extralife_alert_targets_failing",] == 1.0
    assert found["extralife_backup_ok",] == 0.0


# --- names ------------------------------------------------------------------------------------------------------------------


def test_every_figure_of_a_worker_has_a_metric_with_a_base_unit():
    names = [_named(name) for name in FIGURES]
    assert len({*names}) == len(names)
    assert not [name for name in names if re.search(r"_(us|ms|ns|s|mb|percent)$", name) and name != "ckpt_ns"]


def test_names_are_prometheus_names(core):
    families = metrics_view(sources(core))
    names = [family.name for family in families]
    assert len({*names}) == len(names)
    for family in families:
        assert re.fullmatch(r"extralife_[a-z0-9_]+", family.name)
        assert not family.name.endswith(("_total", "_info", "_count", "_bucket", "_sum"))
        assert family.help.isprintable()
        assert not family.help.endswith(".")
        assert {*family.labels} <= {"program", "level", "gpu", "cause", "uuid", "name", "version"}


# --- text -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", [TEXT, OPENMETRICS])
def test_hostile_labels_come_back_as_they_were(content_type):
    hostile = 'a"b\\c\nd{}= \x1b[31m \u202e é 漢'
    family = Family("extralife_x", "gauge", "a \\ and a\nnew line", ("program",), [((hostile,), 1.5)])
    text = encoded([family], content_type).decode()
    (found,) = (open_metrics if content_type == OPENMETRICS else plain_text)(text)
    assert found.samples[0].labels == {"program": hostile}
    assert found.documentation == family.help


def test_what_is_no_unicode_does_not_stop_the_page():
    assert b"\\udcff" in encoded([Family("extralife_x", "gauge", "", ("program",), [(("\udcff",), 1.0)])], TEXT)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        ("application/openmetrics-text; version=1.0.0", OPENMETRICS),
        (("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), OPENMETRICS),
        ("text/plain, application/openmetrics-text;q=0.3", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=lots", TEXT),
        (";;,;q=,q=,", TEXT),
    ],
)  # fmt: skip
def test_a_client_says_which_format_it_wants(accept, content_type):
    assert wanted(accept) == content_type


def test_no_counter_falls_when_the_daemon_or_the_box_starts_again(core):
    """The worker came further than any record: after the power cut less is known, and the counter shows no less."""
    core.look(Pong={"steps": 9000})
    before = counters(core)
    core.reboot("boot-2", steps={"Pong": 8000})
    after = counters(core)
    assert [key for key, value in before.items() if after.get(key, -1.0) < value] == []
    core.begin()
    assert [key for key, value in after.items() if counters(core).get(key, -1.0) < value] == []


def counters(core):
    return {key: value for key, value in read(sources(core)).items() if key[0].endswith("_total")}
