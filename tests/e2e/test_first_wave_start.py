"""A daemon starts on what a real daemon of the first wave left, and its training goes on from the step that it had reached."""

from __future__ import annotations

import shutil

from box import Box, until
from first_release import unpacked


def test_the_state_of_the_first_wave_is_taken_over_with_a_mistake_in_its_configuration(box: Box) -> None:
    wave = unpacked(box.directory, box.runtime)
    checkpoint, step = wave.checkpoint("Catch")
    shutil.copytree(checkpoint, wave.state / "programs" / "Catch" / "checkpoints" / checkpoint.name)
    wave.config_file.write_text(wave.config_file.read_text().replace("slots = 1", "slots = none"))
    box.start()
    facts = box.facts()
    (reboot,) = (fact for fact in facts if fact["kind"] == "HostRebooted")
    assert sorted(reboot["programs"]) == ["Catch", "script"]
    assert reboot["level"] == "medium"
    (refused,) = (fact for fact in facts if fact["kind"] == "ConfigRefused")
    assert refused["in_use"].startswith(f"{wave.config_file} as of ")
    begun = lambda: [fact for fact in box.facts("Resumed", "Catch") if fact["seq"] > reboot["seq"]]  # noqa: E731
    resumed = until(begun, 90, "it to resume")[0]
    assert resumed["step"] == step
    assert resumed["cause"] == "reboot"
    assert box.program("Paddle")["phase"] == "STOPPED"
    assert not box.facts("JournalSalvaged")
