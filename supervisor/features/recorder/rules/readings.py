"""The rows that the recorder writes at one moment: of live programs, the host and GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from supervisor.features.recorder.rules.recording import HOST, Row, as_places
from supervisor.model.inputs import Sample
from supervisor.model.memory import Memory
from supervisor.model.state import Attempt, Program, State
from supervisor.policy.box.readings import Gpus

WHOLE: Final = ""  # in place of a worker's phase: the GPU in all phases


def readings(state: State, memory: Memory, *, now_s: float, wall_s: float) -> dict[str, list[Row]]:
    """The rows of every sheet, by its name. Programs that do not run and hardware that cannot be read have none."""
    live = [
        (program, attempt, watch.sample)
        for _, program in sorted(state.live.items())
        if (attempt := program.attempt) is not None and (watch := memory.watch(program.name, attempt.token)) is not None
    ]
    return {
        "programs": [_program(state, program, attempt, sample, now_s, wall_s) for program, attempt, sample in live],
        "figures": [
            as_places(now_s, wall_s, program.name, attempt.token, sample.steps, own)
            for program, attempt, sample in live
            if (own := sample.own_figures())
        ],
        "host": [] if memory.host is None else [
            Row(now_s, wall_s, (), (state.level,), {each.name: getattr(memory.host, each.name) for each in HOST.series})
        ],
        "gpus": [] if memory.gpus is None else list(_gpus(memory.gpus, now_s, wall_s)),
    }  # fmt: skip


def _program(state: State, program: Program, attempt: Attempt, sample: Sample, now_s: float, wall_s: float) -> Row:
    known = {
        **sample.figures, "attempt": attempt.number, "resumed_step": attempt.resumed_step, "env_steps": sample.steps,
        "frames": sample.frames, "episodes": sample.episodes,
        "nan_count": sample.nan_count, "steps_per_s": sample.steps_per_s, "rss_bytes": sample.rss_bytes,
        "cuda_bytes": sample.cuda_bytes, "num_envs": sample.num_envs, "batch_size": sample.batch_size,
        "memory_bytes": sample.memory_bytes,
    }  # fmt: skip
    return Row(now_s, wall_s, (program.name, attempt.token), (program.phase.value, sample.phase, state.level), known)


def _gpus(gpus: Gpus, now_s: float, wall_s: float) -> Iterator[Row]:
    """One row a GPU, and one for each phase that a worker on it was in."""
    for gpu in gpus.gpus or ():
        name, why = gpu.uuid or str(gpu.index), gpu.lost or (None if gpu.reasons is None else " ".join(gpu.reasons))
        used = None if gpu.total_bytes is None or gpu.free_bytes is None else gpu.total_bytes - gpu.free_bytes
        known = {
            "used_bytes": used, "utilisation": gpu.utilisation, "temperature_c": gpu.temperature_c, "power_w": gpu.power_w,
        }  # fmt: skip
        yield Row(now_s, wall_s, (name, WHOLE), (why,), known)
        for each in gpu.by_phase:
            spreads = {"used_bytes": each.used, "utilisation": each.utilisation}
            means = {key: None if spread is None else spread.mean for key, spread in spreads.items()}
            yield Row(now_s, wall_s, (name, each.phase), (None,), means)
