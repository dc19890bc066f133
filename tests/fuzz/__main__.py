"""Fuzz for longer than CI does: `python tests/fuzz --minutes 30 [--only beat]`.

Goes round the targets with new seeds, says now and then how far it is, and keeps the shortest form of each input that
breaks something in tests/fuzz/corpus/TARGET/, where it is a test from then on. Ends with 1 if there was any.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import signal
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "api"), str(HERE.parents[1])]

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from targets import TARGETS, Target  # noqa: E402

CORPUS = HERE / "corpus"
BATCH = 500
MOST_S = 1.0  # of CPU for one input
HANG_S = 20


def judge(target: Target, data: bytes) -> None:
    """One input; raises for a finding."""
    began = time.thread_time()
    target.check(data)
    took_s = time.thread_time() - began
    assert took_s < MOST_S, f"{took_s:.1f} s of CPU for {len(data)} bytes"


def hunt(target: Target, number: int, until_s: float) -> tuple[int, tuple[bytes, str] | None]:
    """One batch: how many inputs, and the shortest that broke something, with what it broke."""
    count, broke = 0, b""

    @seed(number)
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def batch(data: bytes) -> None:
        nonlocal count, broke
        if time.monotonic() > until_s:
            return
        count += 1
        signal.alarm(HANG_S)
        try:
            judge(target, data)
        except BaseException:
            broke = data
            raise
        finally:
            signal.alarm(0)

    try:
        batch()
    except Exception:
        return count, (broke, traceback.format_exc(limit=-3))
    return count, None


def hung(*_: object) -> None:
    raise AssertionError(f"more than {HANG_S} s for one input")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--only", action="append", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="the first seed; the others follow")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, hung)
    chosen = [TARGETS[name] for name in args.only or TARGETS]
    counts, findings, number = dict.fromkeys((target.name for target in chosen), 0), 0, args.seed
    began, told = time.monotonic(), time.monotonic()
    until_s = began + args.minutes * 60
    print(f"seed {args.seed}, {args.minutes:g} min: {', '.join(counts)}", flush=True)
    while chosen and time.monotonic() < until_s:
        for target in list(chosen):
            count, finding = hunt(target, number, until_s)
            counts[target.name] += count
            if finding is not None:
                findings += 1
                data, text = finding
                path = CORPUS / target.name / hashlib.blake2b(data, digest_size=6).hexdigest()
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                print(f"{target.name}, seed {number}: {data[:200]!r} is kept as {path}\n{text}", flush=True)
                chosen.remove(target)  # it would be found again and again
            if time.monotonic() - told > 30:
                told = time.monotonic()
                print(f"{(told - began) / 60:.1f} min: {sum(counts.values()):,} inputs, {findings} findings", flush=True)
        number += 1
    print(f"{findings} findings; inputs: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
