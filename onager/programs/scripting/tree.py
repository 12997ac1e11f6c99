"""The tree of a script of SQL: its blocks, loops, handlers and statements, as Spark's parser has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onager.programs.scripting.errors import duplicate_handler


@dataclass(frozen=True, slots=True)
class Text:
    """A part of a script: a statement, a condition, or a query."""

    text: str
    line: int
    """Where it begins in the script, from 1; 0: not known."""


@dataclass(frozen=True, slots=True)
class Statement(Text):
    """A statement."""

    what: str
    """``query``, ``command``, ``set``, ``declare``, ``open``, ``fetch``, ``close`` or ``immediate``."""
    targets: tuple[str, ...] = ()
    """The variables of a SET, as SQL has their names."""
    source: str = ""
    """The query that gives the values of a SET, if that reads tables or views."""
    cursor: tuple[str, ...] = ()
    """The parts of the name of the cursor of a FETCH."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler of conditions; names of conditions and SQLSTATEs are in upper case."""

    is_exit: bool
    conditions: frozenset[str]
    sql_states: frozenset[str]
    is_of_not_found: bool
    is_of_exceptions: bool
    body: "Body"


@dataclass(frozen=True, slots=True)
class Body:
    """Statements, one after the other: BEGIN … END (*is_scope*), or what is within a loop or a branch."""

    label: str
    is_scope: bool
    statements: tuple["Node", ...]
    handlers: tuple[Handler, ...]


@dataclass(frozen=True, slots=True)
class If:
    """IF, or CASE WHEN: the first body whose condition is true, else the last one."""

    conditions: tuple[Text, ...]
    bodies: tuple[Body, ...]
    last: Body | None


@dataclass(frozen=True, slots=True)
class Case:
    """CASE of a value: the first body whose own value is equal, else the last one."""

    value: Text
    conditions: tuple[Text, ...]
    bodies: tuple[Body, ...]
    last: Body | None


@dataclass(frozen=True, slots=True)
class Loop:
    """WHILE, REPEAT, LOOP or FOR."""

    kind: str
    """``while``, ``repeat``, ``loop`` or ``for``."""
    label: str
    body: Body
    over: Text | None
    """The condition, or the query of FOR."""
    variable: str = ""
    """The name of a row of FOR, if it has one."""


@dataclass(frozen=True, slots=True)
class Jump:
    """LEAVE or ITERATE."""

    kind: str
    label: str


Node = Body | Statement | If | Case | Loop | Jump


def body_of(said: Mapping[str, Any]) -> Body:
    """Return the body that the kernel's `ScriptTree` describes."""
    return Body(
        said["label"],
        said["is_scope"],
        tuple(_node(each) for each in said["statements"]),
        tuple(_handler(each) for each in said["handlers"]),
    )


def check_handlers(body: Body) -> None:
    """Raise Spark's error for a block, anywhere in *body*, that has two handlers of one condition."""
    seen: set[tuple[str, str]] = set()
    for handler in body.handlers:
        check_handlers(handler.body)
        keys = [("CONDITION", name) for name in sorted(handler.conditions)]
        keys += [("SQLSTATE", state) for state in sorted(handler.sql_states)]
        keys += [("CONDITION", "NOT FOUND")] * handler.is_of_not_found
        keys += [("CONDITION", "SQLEXCEPTION")] * handler.is_of_exceptions
        for key in keys:
            if key in seen:
                raise duplicate_handler(*key)
            seen.add(key)
    for node in body.statements:
        for inner in _bodies(node):
            check_handlers(inner)


def _bodies(node: Node) -> tuple[Body, ...]:
    match node:
        case Body():
            return (node,)
        case If() | Case():
            return node.bodies if node.last is None else (*node.bodies, node.last)
        case Loop():
            return (node.body,)
        case _:
            return ()


def _handler(said: Mapping[str, Any]) -> Handler:
    return Handler(
        said["is_exit"],
        frozenset(name.upper() for name in said["conditions"]),
        frozenset(state.upper() for state in said["sql_states"]),
        said["not_found"],
        said["sql_exception"],
        body_of(said["body"]),
    )


def _node(said: Mapping[str, Any]) -> Node:
    match said["kind"]:
        case "body":
            return body_of(said)
        case "statement":
            return Statement(
                said["text"],
                said["line"],
                said["what"],
                tuple(said.get("targets", ())),
                said.get("source", ""),
                tuple(said.get("cursor", ())),
            )
        case "if":
            return If(*_branches(said))
        case "case":
            return Case(_text(said["value"]), *_branches(said))
        case "leave" | "iterate":
            return Jump(said["kind"], said["label"])
        case kind:
            over = said["over"]
            loop = _text(over) if over is not None else None
            return Loop(kind, said["label"], body_of(said["body"]), loop, said.get("variable", ""))


def _branches(said: Mapping[str, Any]) -> tuple[tuple[Text, ...], tuple[Body, ...], Body | None]:
    last = body_of(said["last"]) if said["last"] is not None else None
    return tuple(_text(each) for each in said["conditions"]), tuple(body_of(each) for each in said["bodies"]), last


def _text(said: Mapping[str, Any]) -> Text:
    return Text(said["text"], said["line"])
