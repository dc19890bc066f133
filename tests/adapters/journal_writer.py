"""Run by test_journal.py in a process of its own: append for ever, and say on stdout what was acknowledged."""

import os
import sys

from supervisor.adapters.journal.sqlite import Journal
from supervisor.model.facts import ClockStepped, Finished


def main() -> None:
    path, name = sys.argv[1:]
    journal = Journal(path)
    number = 0
    while True:
        # Two facts a transaction: a kill in between must leave both or neither.
        pair = [ClockStepped(why=f"{name} {number}", step_s=float(number)), Finished(why=str(number), program=name)]
        stamped = journal.append(pair, at_s=float(number), wall_s=1e9 + number, boot_id="b" * 32)
        os.write(1, f"{number} {stamped[0].seq} {stamped[1].seq}\n".encode())
        number += 1


main()
