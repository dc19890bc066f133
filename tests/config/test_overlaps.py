"""Whether one file can match two patterns: by hand, and against every name of a small alphabet."""

import fnmatch
import itertools

import pytest

from supervisor.config.overlaps import includes, may_meet


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("/srv/Pong-*.pt", "/srv/Pong-s4-*.pt", True),
        ("/srv/Pong-s1-*.pt", "/srv/Pong-s10-*.pt", False),
        ("/srv/Pong-s1*.pt", "/srv/Pong-s10*.pt", True),
        ("/srv/*.pt", "/srv/*.ckpt", False),
        ("/srv/*.pt", "/srv/a/*.pt", False),
        ("/srv/**/*.pt", "/srv/a/b/c.pt", True),
        ("/srv/**/*.pt", "/srv/c.pt", True),
        ("/srv/**", "/srv/a/**/x", True),
        ("/srv/**/a/*.pt", "/srv/**/b/*.pt", False),
        ("/srv/*/last", "/srv/a/*", True),
        ("/srv/a", "/srv/a", True),
        ("/srv/a", "/srv/ab", False),
        ("/srv/step[0-9].pt", "/srv/step7.pt", True),
        ("/srv/ckpt-*", "/srv/ckpt-[!a]?", True),
    ],
)
def test_patterns_of_two_programs(one, other, meet):
    assert may_meet(one, other) is may_meet(other, one) is meet


@pytest.mark.parametrize(
    ("one", "other", "included"),
    [
        ("/srv/Pong-*.pt", "/srv/Pong-s4-*.pt", True),
        ("/srv/Pong-s4-*.pt", "/srv/Pong-*.pt", False),
        ("/srv/**/*.pt", "/srv/b/step=?.pt", True),
        ("/srv/**/*.pt", "/srv/**/b-*.pt", True),
        ("/srv/*.pt", "/srv/**/*.pt", False),
        ("/srv/*/x.pt", "/srv/**/x.pt", False),
        ("/srv/a-*.pt", "/srv/*-b.pt", False),
        ("/srv/a.pt", "/srv/a.pt", True),
        ("/srv/*.pt", "/srv/[ab].pt", True),
        ("/srv/run[12]/*.pt", "/srv/run3/*.pt", False),
        ("/srv/run[12]/*.pt", "/srv/run[12]/*.pt", True),
    ],
)
def test_one_pattern_has_all_files_of_the_other(one, other, included):
    assert includes(one, other) is included


def test_it_agrees_with_every_name_of_up_to_four_letters():
    names = ["".join(each) for size in range(1, 5) for each in itertools.product("ab", repeat=size)]
    patterns = ["".join(each) for size in range(1, 4) for each in itertools.product("ab?*", repeat=size)]
    matched = {pattern: {name for name in names if fnmatch.fnmatchcase(name, pattern)} for pattern in patterns}
    for one, other in itertools.combinations(patterns, 2):
        if matched[one] & matched[other]:
            assert may_meet(f"/{one}", f"/{other}"), (one, other)
        elif one.count("*") + other.count("*") < 2:  # else they may meet in a longer name
            assert not may_meet(f"/{one}", f"/{other}"), (one, other)
