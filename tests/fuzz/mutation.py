"""Hypothesis strategies for broken input: valid examples with damage, as bytes and as JSON; and bytes of no kind at all."""

import json

from hypothesis import strategies as st

ODD_BYTES = [
    b"\0", b"\n", b"\r\n", b"\r\n\r\n", b"\xff", b"\x80", b"\xed\xa0\x80", b"\xc3", b'"', b"'", b"\\", b"{", b"[", b"]", b"}", b"<", b">", b"&",
    b":", b"=", b",", b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"9" * 30, b"9" * 5000, b"[" * 3000, b"%00", b"../", b"A" * 5000, b"null",
    b"true", b"\\ud800", b"\x1b]0;", b"\xe2\x80\xae", b"\xe2\x80\xa8",
]  # fmt: skip
ODD_VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64 - 1, 2**64, -(2**63), 10**40, 0.0, -0.0, 1e308, -1e308, 5e-324, float("nan"),
    float("inf"), "", "\0", "\ud800", "\x1b[2J", "\u202e", "../../etc/passwd", "/etc/passwd", "x" * 3000, "9" * 50, "NaN", [], {}, [[]], [None],
    {"": None}, ["x"] * 200, {"a": {"b": {"c": []}}},
]  # fmt: skip

position = st.floats(0, 1, width=32)
operation = st.tuples(
    st.sampled_from(["flip", "insert", "delete", "double", "cut", "head", "replace"]), position, position,
    st.sampled_from(ODD_BYTES) | st.binary(min_size=1, max_size=8),
)  # fmt: skip


def _apply(data, step):
    what, first, second, odd = step
    begin, end = sorted((int(first * len(data)), int(second * len(data))))
    match what:
        case "flip":
            return data[:begin] + bytes([data[begin] ^ (1 << odd[0] % 8)]) + data[begin + 1 :] if begin < len(data) else data
        case "insert":
            return data[:begin] + odd + data[begin:]
        case "replace":
            return data[:begin] + odd + data[begin + len(odd) :]
        case "delete":
            return data[:begin] + data[end:]
        case "double":
            return data[:end] + data[begin:end] + data[end:]
        case "cut":
            return data[:begin]
        case _:
            return data[begin:]


def damaged(examples):
    """A valid example after one to six blows; now and then bytes of no kind."""

    def build(base, steps):
        for step in steps:
            base = _apply(base, step)
        return base[: 1 << 20]

    struck = st.builds(build, st.sampled_from(examples), st.lists(operation, min_size=1, max_size=6))
    return struck | st.binary(max_size=300)


def paths(value, at=()):
    """Every place in a JSON value."""
    found = [at]
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        found += paths(child, (*at, key))
    return found


def changed(value, at, new, how):
    """The value with another one at that place; removed with `drop`, beside it under an unknown key with `add`."""
    if not at:
        return new
    key, rest = at[0], at[1:]
    copy = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[key] = changed(copy[key], rest, new, how)
    elif how == "drop":
        del copy[key]
    elif how == "add" and isinstance(copy, dict):
        copy[f"{key}_"] = new
    else:
        copy[key] = new
    return copy


def json_values(examples):
    """Valid values in which up to three places hold something else."""
    step = st.tuples(position, st.sampled_from(ODD_VALUES), st.sampled_from(["set", "set", "drop", "add"]))

    def build(base, steps):
        for where, new, how in steps:
            places = paths(base)
            base = changed(base, places[min(len(places) - 1, int(where * len(places)))], new, how)
        return base

    return st.builds(build, st.sampled_from(examples), st.lists(step, min_size=1, max_size=3))


def json_texts(examples):
    """JSON that says something odd, and text that is nearly JSON."""
    texts = [json.dumps(example).encode() for example in examples]
    return json_values(examples).map(lambda value: json.dumps(value).encode()) | damaged(texts)
