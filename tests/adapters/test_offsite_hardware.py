"""What a box has less than the one whose copy it takes."""

from supervisor.adapters.offsite import hardware

NOW = {"cores": 2, "memory_gib": 4.0, "gpus": []}


def test_what_this_box_has_less_is_told():
    before = {"cores": 8, "memory_gib": 24.0, "gpus": ["A100"]}
    assert hardware.missing(before, NOW) == [
        "2 cores instead of 8", "4 GiB of memory instead of 24", "no GPU instead of A100"
    ]  # fmt: skip
    assert hardware.missing(NOW, before) == []
    assert hardware.missing({"cores": 2, "memory_gib": 4.2, "gpus": ["A", "B"]}, NOW | {"gpus": ["B", "A"]}) == []
    assert hardware.missing({"gpus": ["A"]}, NOW | {"gpus": ["B", "A"]}) == [], "it has more"
    assert hardware.missing({"gpus": ["A", "A"]}, NOW | {"gpus": ["A"]}) == ["A instead of A, A"]
    assert hardware.missing({}, NOW) == []


def test_this_box_is_known():
    here = hardware.here()
    assert here["cores"] >= 1
    assert here["memory_gib"] > 0
    assert hardware.missing(here, here) == []
