"""The interpreter of scripts, without Spark: what it asks, in which order, and what errors do."""

from typing import Any

import pytest

from onager.programs.scripting.arguments import MAX_BYTES, arguments_of, check_size
from onager.programs.scripting.errors import ScriptError, ScriptLimitError
from onager.programs.scripting.interpreter import QUERY, Ask, Interpreter
from onager.programs.scripting.tree import Body, body_of


class FakeRows:
    """Rows of one column, ``a``."""

    type = "{}"

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def width(self) -> int:
        return 1

    def variables(self, at: int, names: Any = ()) -> list[dict[str, Any]]:
        return [{"name": names[0] if names else "a", "type": "int", "rows": str(self.values[at]), "default_sql": ""}]

    def stream(self, at: int) -> str:
        return str(self.values[at]) if at < len(self.values) else ""

    def boolean(self) -> bool | None:
        value = self.values[0]
        return value if isinstance(value, bool) else None


def body(*statements: Any, label: str = "b", handlers: Any = (), is_scope: bool = True) -> dict[str, Any]:
    return {
        "kind": "body",
        "label": label,
        "is_scope": is_scope,
        "statements": list(statements),
        "handlers": list(handlers),
    }


def query(text: str, line: int = 1) -> dict[str, Any]:
    return {"kind": "statement", "text": text, "line": line, "what": "query"}


def handler(*statements: Any, is_exit: bool, **triggers: Any) -> dict[str, Any]:
    none = {"conditions": [], "sql_states": [], "not_found": False, "sql_exception": False}
    return none | {"kind": "handler", "is_exit": is_exit, "body": body(*statements, label="h")} | triggers


def loop(kind: str, inner: dict[str, Any], over: str | None = None, label: str = "l") -> dict[str, Any]:
    condition = None if over is None else {"text": over, "line": 1}
    return {"kind": kind, "label": label, "body": inner, "over": condition, "variable": ""}


def run(tree: dict[str, Any], answers: dict[str, Any], max_asks: int = 50) -> tuple[list[str], Interpreter]:
    """Return the texts that are asked, each answered, or refused, as *answers* says of a part of it."""
    interpreter = Interpreter(body_of(tree), is_case_sensitive=False, max_asks=max_asks)
    steps, asked = interpreter.run(), []
    try:
        ask: Ask = next(steps)
        while True:
            asked.append(ask.text)
            found = [answer for part, answer in answers.items() if part in ask.text]
            answer = found[0] if found else FakeRows(1) if ask.kind == QUERY else {"variables": [], "cursors": []}
            answer = answer.pop(0) if isinstance(answer, list) else answer
            ask = steps.throw(answer) if isinstance(answer, ScriptError) else steps.send(answer)
    except StopIteration:
        return asked, interpreter


def zero() -> ScriptError:
    return ScriptError("zero", "DIVIDE_BY_ZERO", "22012")


def test_statements_follow_one_another_and_the_last_query_counts() -> None:
    asked, interpreter = run(body(query("one"), body(query("two"))), {"two": FakeRows(2)})
    assert asked == ["one", "two"]
    assert interpreter.result is not None
    assert interpreter.result.stream(0) == "2"


def test_while_asks_its_condition_before_each_round() -> None:
    asked, _ = run(
        body(loop("while", body(query("in"), is_scope=False), "c")), {"c\n": [FakeRows(True), FakeRows(False)]}
    )
    assert [text.split()[0] for text in asked] == ["SELECT", "in", "SELECT"]


def test_an_exit_handler_leaves_its_block_and_a_continue_handler_does_not() -> None:
    for is_exit, rest in ((True, ["handled", "after"]), (False, ["handled", "next", "after"])):
        inner = body(
            query("fails"), query("next"), handlers=[handler(query("handled"), is_exit=is_exit, sql_exception=True)]
        )
        asked, _ = run(body(inner, query("after"), label="o"), {"fails": zero()})
        assert asked == ["fails", *rest]


def test_an_error_without_a_condition_is_handled_by_nobody() -> None:
    inner = body(query("fails", 7), handlers=[handler(query("handled"), is_exit=True, sql_exception=True)])
    with pytest.raises(ScriptError, match="gone") as raised:
        run(inner, {"fails": ScriptError("gone")})
    assert raised.value.line == 7


def test_rows_of_for_are_variables_of_its_block() -> None:
    tree = body(loop("for", body(query("in"), is_scope=False), "rows"))
    interpreter = Interpreter(body_of(tree), is_case_sensitive=False, max_asks=9)
    steps = interpreter.run()
    next(steps)
    seen = [steps.send(FakeRows(5, 6)), steps.send(FakeRows(0))]
    values = [ask.frames[0]["blocks"][-1]["variables"][0] for ask in seen]
    assert [(value["name"], value["rows"]) for value in values] == [("a", "5"), ("a", "6")]


def test_a_loop_that_asks_nothing_and_one_that_never_ends_are_ended() -> None:
    iterate = body({"kind": "iterate", "label": "l"}, is_scope=False)
    with pytest.raises(ScriptLimitError, match="does nothing, again and again"):
        run(body(loop("loop", iterate)), {})
    with pytest.raises(ScriptLimitError, match="after 5 statements and conditions: line 3 was next"):
        run(body(loop("loop", body(query("in", 3), is_scope=False))), {}, max_asks=5)


def test_two_handlers_of_one_condition_are_refused_before_anything_is_asked() -> None:
    handlers = [handler(is_exit=True, conditions=["divide_by_zero"]) for _ in range(2)]
    with pytest.raises(ScriptError, match="same condition DIVIDE_BY_ZERO"):
        run(body(body(query("one"), handlers=handlers), label="o"), {"one": zero()})


def test_a_tree_is_read_as_the_kernel_writes_it() -> None:
    tree = body_of(body(query("one"), label="x"))
    assert isinstance(tree, Body)
    assert (tree.label, tree.is_scope, tree.statements[0].text) == ("x", True, "one")  # type: ignore[union-attr]


def test_arguments_are_names_with_values_of_json_or_texts() -> None:
    assert arguments_of(["n=3", "day=2026-11-30", "s=a=b", "t="]) == {"n": 3, "day": "2026-11-30", "s": "a=b", "t": ""}
    for wrong in ("n", "=3", "a b=3"):
        with pytest.raises(ValueError, match="is no NAME=VALUE"):
            arguments_of([wrong])


def test_a_script_that_is_too_long_is_refused_by_its_bytes() -> None:
    check_size("x" * MAX_BYTES)
    with pytest.raises(ValueError, match="262,146 bytes, and may have 262,144"):
        check_size("é" * (MAX_BYTES // 2 + 1))
