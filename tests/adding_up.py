"""Whether the accounts of a journal add up: an invariant of the simulator, and of stories in tests."""

from math import fsum

from supervisor.policy.upkeep.accounting import Account
from supervisor.reports.accounts import summary
from supervisor.reports.ledger import ROUNDING_S, fold_accounts


def account_errors(stamped, now_s):
    """The errors in the accounts of a journal at `now_s`, one sentence each; empty if everything adds up."""
    return ledger_errors(fold_accounts(stamped), now_s)


def ledger_errors(ledger, now_s):
    """The same for a ledger that is already folded, for a caller that checks it after every fact."""
    closed = ledger.closed(now_s)
    errors = [sentence for timeline in closed.all_timelines() for sentence in _timeline_errors(timeline, closed)]
    found = summary(closed)
    for sheet in (found.slots, *found.programs):
        total_s = fsum(sheet.seconds.values())
        if abs(total_s - sheet.wall_s) > ROUNDING_S * max(1, len(closed.all_timelines())):
            errors.append(f"{sheet.name}: the accounts add up to {total_s!r} s, paid were {sheet.wall_s!r} s")
        if sheet.seconds.get(Account.UNKNOWN, 0.0) > ROUNDING_S and not sheet.lost_s_unknown:
            errors.append(f"{sheet.name}: {sheet.seconds[Account.UNKNOWN]:.6f} s belong to no known account")
    return errors


def _timeline_errors(timeline, ledger):
    """Check that the slices are end to end, that no time is negative, and that each slice is as long as its seconds."""
    end_s = timeline.from_s
    for piece in timeline.slices:
        if abs(piece.start_s - end_s) > ROUNDING_S:
            yield f"{timeline.name}: nothing is booked from {end_s!r} to {piece.start_s!r}"
        if abs(fsum(piece.seconds.values()) - (piece.end_s - piece.start_s)) > ROUNDING_S:
            yield f"{timeline.name}: {dict(piece.seconds)} are booked from {piece.start_s!r} to {piece.end_s!r}"
        if min(piece.seconds.values()) < -ROUNDING_S:
            yield f"{timeline.name}: negative time is booked from {piece.start_s!r} on: {dict(piece.seconds)}"
        end_s = piece.end_s
    if ledger.timelines.get(timeline.name) is timeline and abs(end_s - ledger.at_s) > ROUNDING_S:
        yield f"{timeline.name}: nothing is booked from {end_s!r} to {ledger.at_s!r}"
