"""No test fails because a machine is slow: nothing waits for so many seconds, or may take no more than so many."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import HANGS_S

TESTS = Path(__file__).parents[1]
LEFT_OUT = ("chaos", "connect_doctests", "connect_writes", "simulation")
"""Programs that run by themselves, with limits of their own, and virtual time."""
LIMITS = ("timeout", "timeout_s", "within_s")
WAITS = {"timeout": 0, "join": 0, "wait": 0, "result": 0, "end": 1, "wait_for": 1}
"""What is called to wait, and the place of its limit among what it is called with."""
CLOCKS = ("monotonic", "perf_counter", "process_time", "thread_time", "time")
SIGNS = re.compile(rf"timeout|within_s|wait_for|\b(join|wait|result|end)\((\w+, )?[\dA-Z]|({'|'.join(CLOCKS)})\(\).*<")
"""A file without any of them has no limit: to parse all files would take long."""
EXCEPTIONS = {
    "e2e/long/test_rolling_restart.py: wait REST_S": "a pause",
    "support/etcd/cluster.py: timeout=2.0": "it is asked again until HANGS_S",
    "support/processes/cluster.py: timeout=1": "it is tried again until HANGS_S",
}
ADVICE = "wait for HANGS_S (tests/support/waiting.py), compare with what the same run measures, or count something else"


def seconds(node: ast.expr | None, constants: dict[str, float]) -> float | None:
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    is_number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    return node.value if is_number and not isinstance(node.value, bool) else None


def limits(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the limits of time in a call, in a function's defaults, or in a comparison with a clock."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            for keyword in node.keywords:
                if keyword.arg in LIMITS:
                    yield f"{keyword.arg}=", keyword.value
            if (place := WAITS.get(name, len(node.args))) < len(node.args):
                yield f"{name} ", node.args[place]
        case ast.arguments():
            defaults = zip(reversed(node.args), reversed(node.defaults), strict=False)
            for argument, default in [*defaults, *zip(node.kwonlyargs, node.kw_defaults, strict=True)]:
                if argument.arg in LIMITS:
                    yield f"{argument.arg}=", default
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
            if any(isinstance(part, ast.Call) and getattr(part.func, "attr", "") in CLOCKS for part in ast.walk(left)):
                yield "a time < ", right


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what may have limits, of what runs in real time."""
    left = [tree]
    while left:
        node = left.pop()
        if not any("virtual_time" in ast.unparse(each) for each in getattr(node, "decorator_list", ())):
            if isinstance(node, ast.Call | ast.arguments | ast.Compare):
                yield node
            left += ast.iter_child_nodes(node)


def found(text: str) -> list[str]:
    if not SIGNS.search(text) or re.search("^pytestmark = .*virtual_time", text, re.MULTILINE):
        return []
    tree, constants = ast.parse(text), {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if (value := seconds(statement.value, {})) is not None:
                    constants[name] = value
    return [
        f"{what}{ast.unparse(limit)}"
        for node in walk(tree)
        for what, limit in limits(node)
        if limit is not None and 1 <= (seconds(limit, constants) or 0) < HANGS_S
    ]


def test_nothing_is_limited_to_so_many_seconds():
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    all_found = {
        f"{name}: {each}"
        for name, path in sorted(files.items())
        if name.partition("/")[0] not in LEFT_OUT
        for each in found(path.read_text())
    }
    assert sorted(all_found - EXCEPTIONS.keys()) == [], ADVICE
    assert EXCEPTIONS.keys() <= all_found, "what is no exception any more"


@pytest.mark.parametrize(
    "text",
    [
        "async with asyncio.timeout(60): pass",
        "SOON_S = 10.0\nawait asyncio.wait_for(ended, SOON_S)",
        "thread.join(20)",
        "subprocess.run(command, timeout=250)",
        "until(is_so, within_s=30)",
        "def wait(count, *, timeout_s=20.0): pass",
        "pytestmark = pytest.mark.timeout(300)",
        "assert time.monotonic() - began_s < 8",
    ],
)
def test_a_limit_in_seconds_is_found(text):
    assert len(found(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "assert not ended.wait(0.1)",
        "job.wait(timeout=HANGS_S)",
        "', '.join(names)",
        "assert taken_s < 3 * usual_s",
        "@pytest.mark.virtual_time\nasync def test():\n    await eventually(is_so, within_s=4)",
    ],
)
def test_other_waits_are_none(text):
    assert found(text) == []
