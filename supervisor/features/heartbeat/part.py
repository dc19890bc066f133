"""The heartbeat of a running daemon."""

from __future__ import annotations

from supervisor.adapters.parts import Part, World
from supervisor.features.heartbeat.adapters.pings import Pinger
from supervisor.features.heartbeat.rules import Ping, targets
from supervisor.features.heartbeat.settings import HeartbeatSettings


def part(world: World) -> Part:
    made = Pinger(
        lambda: targets(world.settings().of(HeartbeatSettings).url), lambda: world.report().partition("\n")[0]
    )  # fmt: skip
    return Part({Ping: made.perform}, stop=made.stop)
