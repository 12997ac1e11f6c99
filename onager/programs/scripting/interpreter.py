"""Walks a script of SQL: says what is to be carried out next, and decides by what came of it. It does no I/O.

Each statement, condition and query of a script is something to be asked; its answer, or its error, comes back before
the next one. The order, the scopes and the handlers are Spark's: see its SqlScriptingExecution.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from onager.programs.scripting.errors import ScriptError, ScriptLimitError, already_exists, not_boolean, too_many_rows
from onager.programs.scripting.scopes import ROW, Block, Rows, Scopes, Value
from onager.programs.scripting.tree import Body, Case, Handler, If, Jump, Loop, Node, Statement, Text, check_handlers

QUERY = "query"
COMMAND = "command"
CHANGE = "change"
OPEN = "open"
IMMEDIATE = "immediate"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be carried out next."""

    kind: str
    """`QUERY`: its answer is `Rows`; `COMMAND`: nothing; others: what the kernel's `ScriptScope` answers."""
    text: str
    line: int
    frames: list[Value] | None = field(repr=False)
    """Where the script is; None: the statement knows nothing of the script (EXECUTE IMMEDIATE)."""


Answer = Any
Steps = Generator[Ask, Answer, Any]


class _Jumped(Exception):  # noqa: N818 - it is no error
    """LEAVE or ITERATE, on its way to its label."""

    def __init__(self, kind: str, label: str) -> None:
        self.kind = kind
        self.label = label


_HANDLED = object()
"""What came of something whose error a handler has handled, that lets the script go on."""


class Interpreter:
    """Walks one script, once."""

    def __init__(self, body: Body, *, is_case_sensitive: bool, max_asks: int) -> None:
        """*max_asks*: how much may be asked; then `ScriptLimitError`."""
        self._body_of_script = body
        self._scopes = Scopes(is_case_sensitive=is_case_sensitive)
        self._max_asks = max_asks
        self._asked = 0
        self._rows_of_for = 0
        self.result: Rows | None = None
        """What the last query gave."""

    def run(self) -> Steps:
        """Yield what is to be carried out; takes answers and `ScriptError`s, and raises what ends the script."""
        check_handlers(self._body_of_script)
        yield from self._body(self._body_of_script)

    # ---------------------------------------------------------------- asking

    def _ask(
        self,
        kind: str,
        text: str,
        line: int,
        *,
        row: Sequence[Value] = (),
        is_hidden: bool = False,
        fetched: Any = None,
    ) -> Steps:
        """Ask; return the answer, or `_HANDLED` if it was an error that a handler has handled."""
        self._asked += 1
        if self._asked > self._max_asks:
            self._fail(f"the script has not ended after {self._max_asks:,} statements and conditions", line)
        frames = None if is_hidden else self._scopes.said(row, fetched)
        try:
            answer = yield Ask(kind, text, line, frames)
        except ScriptError as error:
            yield from self._handle(error, line)
            return _HANDLED
        if kind == CHANGE:
            self._scopes.change(answer, has_row=bool(row))
        return answer

    def _fail(self, why: str, line: int) -> NoReturn:
        error = ScriptLimitError(f"{why}: line {line} was next; look whether a loop ends")
        error.line = line
        raise error

    def _handle(self, error: ScriptError, line: int) -> Steps:
        """Run the handler of *error*; raises it if there is none, unless it only says that there is no more data."""
        error.line = error.line or line
        found = self._scopes.handler_of(error) if error.condition else None
        if found is None:
            if error.sql_state.startswith("02"):
                return
            raise error
        yield from self._run(*found)

    def _run(self, handler: Handler, label: str) -> Steps:
        self._scopes.begin(handler, label)
        try:
            yield from self._body(handler.body)
        except _Jumped:
            pass  # as in Spark, LEAVE and ITERATE end the handler, but reach nothing outside of it
        finally:
            self._scopes.end()
        if handler.is_exit:
            raise _Jumped("leave", label)

    # ---------------------------------------------------------------- control flow

    def _body(self, body: Body) -> Steps:
        if not body.is_scope:
            yield from self._statements(body)
            return
        block = Block(body.label, body.handlers)
        self._scopes.enter(block)
        try:
            yield from self._statements(body)
        finally:
            self._scopes.leave(block)

    def _statements(self, body: Body) -> Steps:
        try:
            for node in body.statements:
                yield from self._node(node)
        except _Jumped as jump:
            if jump.kind != "leave" or not body.label or jump.label != body.label:
                raise

    def _node(self, node: Node) -> Steps:
        match node:
            case Body():
                yield from self._body(node)
            case Statement():
                yield from self._statement(node)
            case If():
                yield from self._if(node)
            case Case():
                yield from self._case(node)
            case Loop():
                yield from self._loop(node)
            case Jump():
                raise _Jumped(node.kind, node.label)

    def _condition(self, text: Text, query: str = "", row: Sequence[Value] = ()) -> Steps:
        """Return whether a condition is true, or `_HANDLED`."""
        rows = yield from self._ask(QUERY, query or f"SELECT (\n{text.text}\n) AS `condition`", text.line, row=row)
        if rows is _HANDLED:
            return _HANDLED
        is_true = rows.boolean()
        if is_true is None:
            yield from self._handle(not_boolean(text.text), text.line)
            return _HANDLED
        return is_true

    def _if(self, node: If) -> Steps:
        for condition, body in zip(node.conditions, node.bodies, strict=True):
            is_true = yield from self._condition(condition)
            if is_true is _HANDLED:
                return
            if is_true:
                yield from self._body(body)
                return
        if node.last is not None:
            yield from self._body(node.last)

    def _case(self, node: Case) -> Steps:
        value = yield from self._ask(QUERY, f"SELECT (\n{node.value.text}\n) AS `value`", node.value.line)
        if value is _HANDLED:
            return
        row = value.variables(0, ["c0"])
        for condition, body in zip(node.conditions, node.bodies, strict=True):
            query = f"SELECT `{ROW}`.`c0` = (\n{condition.text}\n) AS `condition`"
            is_true = yield from self._condition(condition, query, row)
            if is_true is _HANDLED:
                return
            if is_true:
                yield from self._body(body)
                return
        if node.last is not None:
            yield from self._body(node.last)

    def _loop(self, loop: Loop) -> Steps:
        if loop.kind == "for":
            yield from self._for(loop)
            return
        while True:
            asked = self._asked
            if loop.kind == "while":
                is_true = yield from self._condition(loop.over or Text("", 0))
                if is_true is _HANDLED or not is_true:
                    return
            if (yield from self._is_left(loop, loop.body)):
                return
            if loop.kind == "repeat":
                is_true = yield from self._condition(loop.over or Text("", 0))
                if is_true is _HANDLED or is_true:
                    return
            elif asked == self._asked:
                self._fail("a LOOP does nothing, again and again", _first_line(loop.body))

    def _for(self, loop: Loop) -> Steps:
        query = loop.over or Text("", 0)
        rows = yield from self._ask(QUERY, query.text, query.line)
        if rows is _HANDLED:
            return
        self._rows_of_for += 1
        label = loop.variable.lower() or f"for {self._rows_of_for}"
        for at in range(len(rows)):
            block = Block(label)
            for each in rows.variables(at):
                name = self._scopes.name(each["name"])
                if name in block.variables:
                    yield from self._handle(already_exists(label, name), query.line)
                block.variables[name] = {**each, "name": name}
            self._scopes.enter(block)
            try:
                if (yield from self._is_left(loop, loop.body)):
                    return
            finally:
                self._scopes.leave(block)

    def _is_left(self, loop: Loop, body: Body) -> Steps:
        """Run the body of a loop once; return whether it is left."""
        try:
            yield from self._body(body)
        except _Jumped as jump:
            if not loop.label or jump.label != loop.label:
                raise
            return jump.kind == "leave"
        return False

    # ---------------------------------------------------------------- statements

    def _statement(self, statement: Statement) -> Steps:
        match statement.what:
            case "query":
                rows = yield from self._ask(QUERY, statement.text, statement.line)
                self.result = self.result if rows is _HANDLED else rows
            case "command":
                yield from self._ask(COMMAND, statement.text, statement.line)
            case "set" if statement.source:
                rows = yield from self._ask(QUERY, statement.source, statement.line)
                if rows is not _HANDLED:
                    yield from self._assign(statement.targets, rows, statement.line)
            case "fetch":
                yield from self._fetch(statement)
            case "open":
                yield from self._open(statement)
            case "immediate":
                yield from self._immediate(statement)
            case _:
                yield from self._ask(CHANGE, statement.text, statement.line)

    def _assign(self, targets: Sequence[str], rows: Rows, line: int) -> Steps:
        """Have the variables *targets* the only row of *rows*, or NULL if there is none."""
        if len(rows) > 1:
            yield from self._handle(too_many_rows(), line)
            return
        names = [f"c{number}" for number in range(rows.width())]
        values = ", ".join(f"`{ROW}`.`{name}`" for name in names)
        text = f"SET VARIABLE ({', '.join(targets)}) = (SELECT {values})"
        yield from self._ask(CHANGE, text, line, row=rows.variables(0, names))

    def _fetch(self, statement: Statement) -> Steps:
        cursor = self._scopes.cursor(statement.cursor)
        if cursor is not None and cursor.error is not None:
            yield from self._handle(cursor.error, statement.line)
            return
        if cursor is not None:
            cursor.at += 1  # its row is used up, even if a variable cannot take it
        yield from self._ask(CHANGE, statement.text, statement.line, fetched=cursor)

    def _open(self, statement: Statement) -> Steps:
        """Open a cursor: it has the rows that there are now. FETCH raises what goes wrong as they are made."""
        opened = yield from self._ask(OPEN, statement.text, statement.line)
        if opened is _HANDLED:
            return
        try:
            self._asked += 1
            rows = yield Ask(QUERY, opened["query"], statement.line, self._scopes.said())
        except ScriptError as error:
            if not error.condition or error.is_analysis:
                yield from self._handle(error, statement.line)
                return
            self._scopes.opened(opened, None, error)
        else:
            self._scopes.opened(opened, rows, None)

    def _immediate(self, statement: Statement) -> Steps:
        """EXECUTE IMMEDIATE: its statement knows the session, and nothing of the script."""
        meant = yield from self._ask(IMMEDIATE, statement.text, statement.line)
        if meant is _HANDLED:
            return
        into = meant["into"]
        while meant["what"] == "immediate":
            meant = yield from self._ask(IMMEDIATE, meant["text"], statement.line, is_hidden=True)
            if meant is _HANDLED:
                return
            into = into or meant["into"]
        if meant["what"] == "command":
            yield from self._ask(COMMAND, meant["text"], statement.line, is_hidden=True)
            return
        rows = yield from self._ask(QUERY, meant["text"], statement.line, is_hidden=True)
        if rows is _HANDLED:
            return
        if into:
            yield from self._assign(into, rows, statement.line)
        else:
            self.result = rows


def _first_line(body: Body) -> int:
    """Return the first line of a body that is known."""
    for node in body.statements:
        line = getattr(node, "line", 0)
        if line:
            return int(line)
    return 0
