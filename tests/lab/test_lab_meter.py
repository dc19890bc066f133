"""deploy/install.sh from nothing to two games, and through three ends: the power goes, the budget is reached, all is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import CONFIG, GAMES, Installed
from labbox import PATIENCE, ROOT, until

POWEROFF = "/opt/extralife/deploy/when_done/poweroff"


def ends(box: Installed) -> None:
    """Wait until the box has turned itself off; then somebody turns it on."""
    assert box._outer is not None
    assert box._outer.wait(180 * PATIENCE) == 0, box.console.read_text(errors="replace")[-2000:]
    box._kill()
    box.boot()


def settings(steps: int = 10**9, budget: float = 1e9) -> str:
    training = f"[training]\nsteps = {steps}\n"
    return CONFIG.replace("[training]\n", training) + (
        f"[cost]\nusd_per_hour = 3600.0\nbudget_usd = {budget}\n"
        f'[when_done]\ncommand = ["{POWEROFF}"]\nwhen = ["done", "budget"]\nafter_s = 1.0\n'
    )


def newest(box: Installed) -> dict[str, int]:
    return {name: found[0][0] for name, found in box.checkpoints().items()}


def test_a_box_turns_itself_off_at_each_end_and_goes_on_when_it_is_on_again(box: Installed) -> None:
    if box.run("sh", "-c", "command -v pkaction", check=False).returncode != 0:
        pytest.skip("without polkit only root may turn a box off (apt-get install polkitd)")
    comment = Path(ROOT, "deploy/when_done/poweroff").read_text().partition("rules:\n")[2].partition("# Elsewhere")[0]
    box.write("/etc/polkit-1/rules.d/50-extralife.rules", comment.replace("#   ", ""))
    box.configure(settings())
    box.show_own_boot_id()
    box.install()
    before = box.wait_until_trains()
    until(lambda: set(newest(box)) == set(GAMES), 60, "a checkpoint of each")
    box.cut_power()
    box.boot()
    box.wait_until_trains()

    box.configure(settings(budget=1.0))  # it has cost more
    box.ctl("update", check=True)
    ends(box)
    said = [fact["why"] for fact in box.facts("WhenDoneStep")]
    assert any("of the budget" in why and "saved on this box" in why for why in said), said
    saved = newest(box)
    assert all(saved[name] >= before[name]["steps"] for name in GAMES)

    box.configure(settings(steps=max(saved.values()) + 500))
    box.ctl("update", check=True)
    ends(box)
    assert min(newest(box).values()) >= max(saved.values()) + 500
