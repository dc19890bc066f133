"""Names of nodes as Slurm writes them. The expected ones are what `scontrol show hostnames` and `hostlist` print."""

import re

import pytest

from supervisor.features.slurm.rules.jobs import Job
from supervisor.features.slurm.rules.node_names import MOST, BadNodes, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a[01-03,7],b", ("a01", "a02", "a03", "a7", "b")),
        ("gilbreth-g[000-001]", ("gilbreth-g000", "gilbreth-g001")),
        ("rack[1-2]n[3-4]", ("rack1n3", "rack1n4", "rack2n3", "rack2n4")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("n[1-2]-ib", ("n1-ib", "n2-ib")),
        ("n1,n1,n2", ("n1", "n2")),
        ("n[1]", ("n1",)),
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        ("N/A", ()),
        (" ", ()),
    ],
)
def test_expand(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a[1-", "'a[1-' has brackets that do not match"),
        ("a]1[", "'a]1[' has brackets that do not match"),
        ("a[[1]]", "'a[[1]]' has brackets that do not match"),
        ("a[3-1]", "'[3-1]' is no range of numbers"),
        ("a[x-y]", "'[x-y]' is no range of numbers"),
        ("a[]", "'[]' is no range of numbers"),
        ("a[1-²]", "'[1-²]' is no range of numbers"),
        ("a,,b", "'' is no name of a node"),
        ("a b", "'a b' is no name of a node"),
        (f"a[0-{MOST}]", "'[0-65536]' names more than 65536 nodes"),
        ("a[1-999]b[1-999]", "'a[1-999]b[1-999]' names more than 65536 nodes"),
        (f"a[1-{MOST}],b", "'a[1-65536],b' names more than 65536 nodes"),
        ("a[1-256]b[1-256],c", "'a[1-256]b[1-256],c' names more than 65536 nodes"),
    ],
)
def test_a_damaged_list_is_refused_and_fills_no_memory(text: str, why: str) -> None:
    with pytest.raises(BadNodes, match=f"^{re.escape(why)}$"):
        expand(text)


@pytest.mark.parametrize("text", [f"a[1-{MOST}]", "a[1-256]b[1-256]"])
def test_a_list_may_name_just_as_many_as_slurm_allows(text: str) -> None:
    assert len(expand(text)) == MOST


def test_how_scontrol_names_a_job() -> None:
    assert Job(17).target == "17"
    assert [Job(1, state=each).ended for each in ("TIMEOUT", "COMPLETING", "UNKNOWN")] == [True, False, False]
    assert [Job(1, state=each).waiting for each in ("PENDING", "REQUEUE_HOLD", "RUNNING")] == [True, True, False]
    assert [Job(1, state=each).suspended for each in ("SUSPENDED", "STOPPED", "RUNNING")] == [True, True, False]
