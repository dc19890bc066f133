"""No test that cannot fail: each one asserts something, and none of its assertions can hold because there was nothing to look at.

Read from the tests' own source. A test that a rule finds wrongly is listed in `FINE`, with the reason.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
FINE = {"test_docs.py::test_links_resolve": "a document may have no link; test_links_are_found counts them all"}
VERDICTS = {"raises", "warns", "fail", "deprecated_call"}  # of pytest
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def functions():
    """Every function of the tests, with its file. All the source is walked through once: that is half the time of this file."""
    return [
        (path, node)
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, FUNCTIONS)
    ]


@cache
def below(node):
    """A node and all below it, in the order of ast.walk, which every rule would else go through anew."""
    found = [node]
    for each in found:  # which grows
        for field in each._fields:
            match getattr(each, field, None):
                case ast.AST() as child:
                    found.append(child)
                case list(children):
                    found += [child for child in children if isinstance(child, ast.AST)]
    return found


@cache
def called(node):
    """The last name of every call below a node: `check` of `kit.check(...)`."""
    calls = [each.func for each in below(node) if isinstance(each, ast.Call)]
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in calls}


@cache
def asserts(node):
    """Whether something below a node can fail by itself: an assertion, pytest's verdicts, a raise, a checked program."""
    for each in below(node):
        if isinstance(each, ast.Assert | ast.Raise):
            return True
        if isinstance(each, ast.Call) and any(word.arg == "check" and is_true(word.value) for word in each.keywords):
            return True
    return bool(VERDICTS & called(node))


def is_true(node):
    return isinstance(node, ast.Constant) and node.value is True


@cache
def verifying():
    """Names of the helpers in the tests that assert something, themselves or by another helper."""
    helpers = {}
    for _, node in functions():
        if not node.name.startswith("test_"):
            helpers.setdefault(node.name, []).append(node)
    found = {name for name, nodes in helpers.items() if any(asserts(node) for node in nodes)}
    while more := {name for name, nodes in helpers.items() if any(found & called(node) for node in nodes)} - found:
        found |= more
    return found


def every_test():
    for path, node in functions():
        if path.name.startswith("test_") and node.name.startswith("test_"):
            yield f"{path.relative_to(TESTS)}::{node.name}", node


def verifies(node):
    return asserts(node) or bool(verifying() & called(node))


# --- rules ---------------------------------------------------------------------------------------------------------------


def says_nothing(test):
    """Neither it nor a helper that it calls asserts anything."""
    return [] if verifies(test) else [test.lineno]


def only_perhaps(test):
    """All that it asserts is in an `if` without an else, in an `except`, or in a loop over what may be empty."""

    known = assigned(test)

    def surely(statements):
        return any(certain(each) for each in statements)

    def certain(node):
        match node:
            case ast.If():
                return verifies(node.test) or (surely(node.body) and surely(node.orelse))
            case ast.Try():
                return surely(node.body) or surely(node.orelse) or surely(node.finalbody)
            case ast.For() | ast.AsyncFor():
                return (filled(node.iter, known) and surely(node.body)) or verifies(node.iter) or surely(node.orelse)
            case ast.While():
                return verifies(node.test) or surely(node.body) or surely(node.orelse)
            case ast.With() | ast.AsyncWith():
                return any(verifies(item) for item in node.items) or surely(node.body)
            case ast.Match():
                return all(surely(case.body) for case in node.cases)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return False  # called or not, elsewhere
        return verifies(node)

    return [test.lineno] if verifies(test) and not surely(test.body) and not defines(test) else []


def defines(test):
    """Whether it has a helper of its own that asserts: whether that is called is a question for the eye."""
    return any(isinstance(node, (*FUNCTIONS, ast.ClassDef)) and verifies(node) for node in below(test) if node is not test)


@cache
def assigned(test):
    """What the names in a test were given, where there is one assignment; its drawn lists, where they have a `min_size`."""
    found = {}
    for node in below(test):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value):
                found[name] = None if name in found else value
    if any(word.arg == "min_size" for each in test.decorator_list for word in below(each) if isinstance(word, ast.keyword)):
        found |= {each.arg: ast.List([ast.Constant(1)]) for each in test.args.args}
    return found


def filled(node, known):
    """Whether an iterable has something in it for certain: a literal, a range of a number, and what is made of such."""
    match node:
        case ast.Name(id=name) if known.get(name) is not None:
            return filled(known[name], {**known, name: None})
        case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops):
            return all(filled(loop.iter, known) and not loop.ifs for loop in loops)
        case ast.Tuple(elts=found) | ast.List(elts=found) | ast.Set(elts=found) | ast.Dict(keys=found):
            return any(not isinstance(each, ast.Starred) for each in found)
        case ast.Constant(value=str() | bytes() as text):
            return bool(text)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()  # a constant of the module, which its author sees
        case ast.Call(func=ast.Name(id="range"), args=args):
            return not any(isinstance(arg, ast.Constant) and arg.value == 0 for arg in args[-1:])
        case ast.Call(func=ast.Name(id="enumerate"), args=[first, *_]):
            return filled(first, known)
        case ast.Call(func=ast.Name(id="sorted" | "zip" | "reversed" | "list" | "set" | "tuple"), args=args):
            return bool(args) and all(filled(arg, known) for arg in args)
        case ast.Call(func=ast.Attribute(value=value, attr="items" | "values" | "keys" | "split" | "product")):
            return filled(value, known)
        case ast.BinOp(left=left, right=right):
            return filled(left, known) or filled(right, known)
    return False


def all_of_nothing(test):
    """`assert all(... for x in y)` where nothing else that it asserts is about y."""
    found, known = [], assigned(test)
    for node in below(test):
        if not isinstance(node, ast.Assert):
            continue
        for call in below(node.test):
            match call:
                case ast.Call(
                    func=ast.Name(id="all"), args=[ast.GeneratorExp(generators=[ast.comprehension(iter=over), *_])]
                ):
                    if not filled(over, known) and not spoken_of(over, test, node, call):
                        found.append(node.lineno)
    return found


def spoken_of(over, test, but, call):
    """Whether another assertion, another part of this one, or an unpacking names what is iterated over."""
    names = {each.id for each in below(over) if isinstance(each, ast.Name)}
    inside = {id(each) for each in below(call)}
    others = [each for each in below(test) if isinstance(each, ast.Assert) and each is not but]
    named = {each.id for other in others for each in below(other) if isinstance(each, ast.Name)}
    named |= {each.id for each in below(but) if isinstance(each, ast.Name) and id(each) not in inside}
    return bool(names & named)


RULES = (says_nothing, only_perhaps, all_of_nothing)


@cache
def found_by(rule):
    """(name, line) in every test."""
    return {(name, line) for name, test in every_test() for line in rule(test)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_test_that_cannot_fail(rule):
    found = {f"{name} (line {line})" for name, line in found_by(rule) if name not in FINE}
    assert not found, f"{rule.__doc__}\n" + "\n".join(sorted(found))


def test_every_exemption_is_needed():
    found = {name for rule in RULES for name, _ in found_by(rule)}
    assert set(FINE) <= found
    assert len(list(every_test())) > 1000


@pytest.mark.parametrize(
    ("rule", "body", "line"),
    [
        (says_nothing, "made = 1", 1),
        (says_nothing, "assert made", None),
        (says_nothing, "with pytest.raises(OSError):\n  made", None),
        (only_perhaps, "if made:\n  assert made", 1),
        (only_perhaps, "if made:\n  assert made\nelse:\n  assert not made", None),
        (only_perhaps, "for each in made:\n  assert each", 1),
        (only_perhaps, "for each in (1, 2):\n  assert each", None),
        (only_perhaps, "try:\n  made\nexcept OSError:\n  assert made", 1),
        (only_perhaps, "for each in made:\n  assert each\nassert made", None),
        (all_of_nothing, "assert all(each for each in made)", 2),
        (all_of_nothing, "assert all(each for each in made)\nassert len(made) == 2", None),
        (all_of_nothing, "assert made and all(each for each in made)", None),
        (all_of_nothing, "assert all(each for each in (1, 2))", None),
        (all_of_nothing, "made = [1]\nassert all(each for each in made)", None),
        (all_of_nothing, "made = find()\nassert all(each for each in made)", 3),
    ],
)
def test_what_the_rules_find(rule, body, line):
    (test,) = ast.parse("def test_it():\n" + "\n".join(f"  {text}" for text in body.splitlines())).body
    assert rule(test) == ([] if line is None else [line])
