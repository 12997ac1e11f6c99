"""Where a script is: its frames, their blocks, and what was declared in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from onager.programs.scripting.errors import ScriptError
from onager.programs.scripting.tree import Handler

SCRIPT = "script"
EXIT = "exit"
CONTINUE = "continue"
ROW = "onager row"
"""The label of a block whose variables ``c0``, ``c1``, … are the columns of a row that a statement assigns."""
_NO_DATA = "02"
_INTERNAL = "XX"

Value = dict[str, Any]
"""A variable as the kernel's `ScriptScope` has it, without its place: name, type, rows, default_sql."""


class Rows(Protocol):
    """The rows that a query gave."""

    type: str
    """Their columns, as JSON."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def width(self) -> int:
        """Return how many columns they have."""
        ...

    def variables(self, at: int, names: Sequence[str] = ()) -> list[Value]:
        """Return the columns of a row as variables, called as the columns are, or by *names*.

        Beyond the last row their values are NULL.
        """
        ...

    def stream(self, at: int) -> str:
        """Return a row as a stream of Arrow, in Base64; beyond the last one, a stream without rows."""
        ...

    def boolean(self) -> bool | None:
        """Return whether the first row's only value is true; None if that is no truth value."""
        ...


@dataclass(slots=True)
class Cursor:
    """A cursor, and the rows that it gives since it was opened."""

    said: Value
    """As the kernel has it: name, shown, query, state."""
    rows: Rows | None = None
    error: ScriptError | None = None
    """What came instead of rows."""
    at: int = 0
    """How many rows were fetched."""


@dataclass(slots=True)
class Block:
    """A block that has been entered."""

    label: str
    handlers: tuple[Handler, ...] = ()
    variables: dict[str, Value] = field(default_factory=dict)
    cursors: dict[str, Cursor] = field(default_factory=dict)

    def handler_of(self, condition: str, sql_state: str) -> Handler | None:
        """Return the most specific handler of a condition, as Spark chooses it."""
        names = [condition, condition.partition(".")[0]]
        for name in names:
            for handler in self.handlers:
                if name in handler.conditions:
                    return handler
        for handler in self.handlers:
            if sql_state in handler.sql_states:
                return handler
        # As in Spark 4.3, a general handler counts only if its block declares no other one behind it.
        last = self.handlers[-1] if self.handlers else None
        if last is not None and last.is_of_not_found and sql_state.startswith(_NO_DATA):
            return last
        if last is not None and last.is_of_exceptions and not sql_state.startswith((_NO_DATA, _INTERNAL)):
            return last
        return None


@dataclass(slots=True)
class Frame:
    """The script, or a handler that runs; *label*: of the block that has the handler."""

    kind: str
    label: str = ""
    blocks: list[Block] = field(default_factory=list)


class Scopes:
    """The frames of a script, the innermost last. What is looked up is found as in Spark."""

    def __init__(self, *, is_case_sensitive: bool) -> None:
        self._is_case_sensitive = is_case_sensitive
        self.frames = [Frame(SCRIPT)]
        self._handled = ""
        """The label of the block of the script whose handler runs."""

    def name(self, name: str) -> str:
        """Return how a variable or cursor called *name* is kept."""
        return name if self._is_case_sensitive else name.lower()

    def enter(self, block: Block) -> None:
        """Enter a block."""
        self.frames[-1].blocks.append(block)

    def leave(self, block: Block) -> None:
        """Leave a block; what was declared in it is gone."""
        self.frames[-1].blocks.remove(block)

    def begin(self, handler: Handler, label: str) -> None:
        """Begin to run a handler of the block *label*."""
        self.frames.append(Frame(EXIT if handler.is_exit else CONTINUE, label))

    def end(self) -> None:
        """End the handler that runs."""
        frame = self.frames.pop()
        if frame.label == self._handled:
            self._handled = ""

    def handler_of(self, error: ScriptError) -> tuple[Handler, str] | None:
        """Return the handler of an error, and the label of its block.

        Within a handler, its own blocks come first, and then those around the block of the script that has it: blocks
        of handlers in between do not count. Source: Spark's SqlScriptingExecutionContext.
        """
        condition, state = error.condition.upper(), error.sql_state.upper()
        if self.frames[-1].kind != SCRIPT and (found := _first(self.frames[-1].blocks, condition, state)):
            return found
        blocks = self.frames[0].blocks
        if self._handled:
            labels = [block.label for block in blocks]
            blocks = blocks[: labels.index(self._handled)] if self._handled in labels else []
        if found := _first(blocks, condition, state):
            self._handled = found[1]
        return found

    def cursor(self, parts: Sequence[str]) -> Cursor | None:
        """Return the cursor of a name, ``c`` or ``label.c``; None if there is none, of which Spark tells."""
        *labels, name = parts
        for block in self._visible():
            if labels and block.label != labels[-1].lower():
                continue
            if (found := block.cursors.get(self.name(name))) is not None:
                return found
            if labels:
                return None
        return None

    def _visible(self) -> Iterable[Block]:
        """Yield the blocks that a statement sees, the innermost first."""
        yield from reversed(self.frames[-1].blocks)
        label = self.frames[-1].label
        for frame in reversed(self.frames[:-1]):
            labels = [block.label for block in frame.blocks]
            if label in labels:
                yield from reversed(frame.blocks[: labels.index(label) + 1])
                label = frame.label

    # ---------------------------------------------------------------- what travels

    def said(self, row: Sequence[Value] = (), fetched: Cursor | None = None) -> list[Value]:
        """Return the frames for the kernel; *row*: variables of a block `ROW` around the innermost frame's blocks.

        *fetched*: the cursor whose next row comes along.
        """
        frames = [
            {"kind": frame.kind, "label": frame.label, "blocks": [_block(block, fetched) for block in frame.blocks]}
            for frame in self.frames
        ]
        if row:
            variables = [_placed(each) for each in row]
            frames[-1]["blocks"].insert(0, {"label": ROW, "variables": variables, "cursors": []})
        return frames

    def change(self, changes: Value, *, has_row: bool) -> None:
        """Take over what a statement has declared or set, as the kernel says."""
        for each in changes["variables"]:
            self._block(each, has_row=has_row).variables[each["name"]] = each
        for each in changes["cursors"]:
            block = self._block(each, has_row=has_row)
            known = block.cursors.get(each["name"])
            if known is None:
                block.cursors[each["name"]] = Cursor(each)
            else:
                known.said = each
                if each["state"] == "closed":
                    known.rows = known.error = None

    def opened(self, said: Value, rows: Rows | None, error: ScriptError | None) -> None:
        """Take over the rows of a cursor that was opened, or the error that came instead."""
        cursor = self.frames[said["frame"]].blocks[said["block"]].cursors[said["name"]]
        cursor.said = {**cursor.said, "state": "open"}
        cursor.rows, cursor.error, cursor.at = rows, error, 0

    def _block(self, place: Value, *, has_row: bool) -> Block:
        frame, block = int(place["frame"]), int(place["block"])
        is_shifted = has_row and frame == len(self.frames) - 1
        return self.frames[frame].blocks[block - 1 if is_shifted else block]


def _first(blocks: Sequence[Block], condition: str, sql_state: str) -> tuple[Handler, str] | None:
    for block in reversed(blocks):
        if (found := block.handler_of(condition, sql_state)) is not None:
            return found, block.label
    return None


_NOTHING = {"type": '{"type":"struct","fields":[]}', "rows": ""}


def _block(block: Block, fetched: Cursor | None) -> Value:
    return {
        "label": block.label,
        "variables": [_placed(each) for each in block.variables.values()],
        "cursors": [_cursor(each, is_fetched=each is fetched) for each in block.cursors.values()],
    }


def _cursor(cursor: Cursor, *, is_fetched: bool) -> Value:
    columns = _NOTHING
    if is_fetched and cursor.rows is not None:
        columns = {"type": cursor.rows.type, "rows": cursor.rows.stream(cursor.at - 1)}
    return _placed({**cursor.said, **columns})


def _placed(value: Value) -> Value:
    return {"frame": 0, "block": 0, **value}
