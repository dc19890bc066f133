"""Every fault of the catalogue has a test on real processes and a story in the simulator; its row names a marked test."""

import ast
from functools import cache
from pathlib import Path

import pytest
from catalogue import FAULTS, ROWS

TESTS = Path(__file__).resolve().parent
REAL, STORY = "e2e", "sim"


def _names_of(call):
    return [arg.value if isinstance(arg, ast.Constant) else None for arg in call.args]


def _is_mark(node):
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "pytest.mark.fault"
    )


@cache
def marks():
    """(fault, layer, file, function) of every mark, also of those in parameters; read from the sources, nothing is imported."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "mark.fault" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [call for each in node.decorator_list for call in ast.walk(each) if _is_mark(call)]
                layer = path.relative_to(TESTS).parts[0]
                found += [(name, layer, path, node.name) for call in calls for name in _names_of(call)]
    return found


def covered(layer):
    return {fault for fault, where, _, _ in marks() if where == layer}


def test_marks_name_faults_of_the_catalogue():
    unknown = {(fault, path.name, function) for fault, _, path, function in marks() if fault not in FAULTS}
    assert not unknown
    functions = {function for _, _, _, function in marks()}
    assert len(functions) > 50
    assert all(function.startswith("test_") for function in functions)


@pytest.mark.parametrize("layer", [REAL, STORY])
def test_every_fault_is_shown(layer):
    assert set(FAULTS) - covered(layer) == set()


def test_a_row_with_a_fault_names_a_test_that_is_marked_with_it():
    for row in ROWS:
        file, _, function = row.test.partition("::")
        named = [fault for fault, _, path, name in marks() if (path, name) == (TESTS / file, function)]
        assert row.fault is None or row.fault in named, f"{row.when}: {function} of {file} is not marked {row.fault!r}"


def test_a_fault_has_one_row():
    assert len({row.when for row in ROWS}) == len(ROWS) > 100
    assert {row.fault: row.when for row in ROWS if row.fault is not None} == FAULTS
