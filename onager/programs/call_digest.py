"""What tells a call of a program from another one, also in a program that was mended since: a digest of what it asks.

It leaves out what PySpark draws or counts, and where the program's text stands: ids of plans, seeds, names that PySpark
has drawn, call sites; of functions the files, the lines and their tables. So a function that has moved down a line is
the same one.
"""

import hashlib
import re
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

_VERSION = b"1"
"""Of what is left out: a digest of another one is another call."""
_ASKED = {"ExecutePlan": "plan", "AnalyzePlan": "", "Config": "operation", "AddArtifacts": "", "Interrupt": ""}
"""By the methods of which more counts than that they are called: the field that has it; "" for all of the request."""
_NOT_ASKED = frozenset(
    {"session_id", "client_observed_server_side_session_id", "user_context", "client_type", "tags", "operation_id"}
)
_LEFT_OUT = frozenset({"origin", "seed"})
_NUMBERED = frozenset({"plan_id", "relation_id"})
"""Ids that are drawn or counted: which fields have the same one, counts."""
_SEEDED = frozenset({"rand", "randn", "uniform", "shuffle", "uuid", "randstr", "count_min_sketch"})
"""Functions whose last argument is a seed, drawn by PySpark unless the program gives it."""
_DRAWN_FORM = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_LABEL = re.compile(rb'"label": "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"')
"""Of a block of a script of SQL that has none of its own: Spark draws it."""
_PARSES = b'{"ask": "parse"'
"""The beginning of what asks for the tree of a script: another text of the script is the same question."""
_VARIABLE = re.compile(r"(.*)_[0-9]+")
_DRAWN_CHARS = 32
_KEPT = 10_000
_HASHED_BYTES = 64
"""Values that are longer are taken by their digests."""


class Known:
    """What this process has drawn and pickled, as far as a digest has to know it."""

    def __init__(self) -> None:
        self.drawn: OrderedDict[str, None] = OrderedDict()
        """What PySpark has drawn for names, as text without dashes."""
        self.functions: OrderedDict[bytes, bytes] = OrderedDict()
        """By the digests of pickled functions: those of what they do."""


KNOWN = Known()


def note_drawn(text: str) -> None:
    """Take in what PySpark has drawn for a name."""
    _keep(KNOWN.drawn, text.replace("-", ""), None)


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    if len(kept) > _KEPT:
        kept.popitem(last=False)


def digest_of(method: str, request: Any) -> str:
    """Return the digest of what a *request* of PySpark's, of the *method*, asks for: 32 hexadecimal digits."""
    asked = _ASKED.get(method)
    if asked is None:
        return ""
    walk = _Walk()
    walk.take(_VERSION + method.encode())
    for extension in request.user_context.extensions:
        if extension.value.startswith(_PARSES):
            return walk.digest()
        walk.value(_LABEL.sub(lambda found: walk.number("label", found[0]), extension.value))
    if asked:
        walk.message(getattr(request, asked))
    else:
        walk.message(request, _NOT_ASKED)
    return walk.digest()


class _Walk:
    """Goes through a message, and hashes what counts of it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._numbers: dict[tuple[str, Any], int] = {}
        self.take = self._parts.append

    def digest(self) -> str:
        return hashlib.sha256(b"\0".join(self._parts)).hexdigest()[:32]

    def message(self, message: Any, without: frozenset[str] = frozenset()) -> None:
        take = self.take
        take(b"(")
        kind = type(message)
        if kind not in _TAKES:
            _TAKES[kind] = _SPECIAL.get(message.DESCRIPTOR.name)
        if (takes := _TAKES[kind]) is not None:
            takes(self, message)
        else:
            for field, value in message.ListFields():
                known = _FIELDS.get(field) or _known(field)
                if known.is_left_out or (without and known.name in without):
                    continue
                take(known.number)
                known.take(self, known, value)
        take(b")")

    def number(self, kind: str, value: Any) -> bytes:
        """Return as which of its kind a value has come."""
        return b"#%d" % self._numbers.setdefault((kind, value), len(self._numbers))

    def value(self, value: Any) -> None:
        if isinstance(value, str):
            if len(value) >= _DRAWN_CHARS and KNOWN.drawn:
                value = _DRAWN_FORM.sub(self._undrawn, value)
            value = value.encode()
        elif not isinstance(value, bytes):
            value = repr(value).encode()
        self.take(b"%d" % len(value))
        self.take(value if len(value) <= _HASHED_BYTES else hashlib.sha256(value).digest())

    def _undrawn(self, found: re.Match[str]) -> str:
        text = found[0].replace("-", "")
        return self.number("drawn", text).decode() if text in KNOWN.drawn else found[0]


class _Field(NamedTuple):
    """What is known of a field."""

    name: str
    number: bytes
    is_left_out: bool
    take: Callable[["_Walk", "_Field", Any], None]
    has_messages: bool
    """Of a map: whether its values are messages."""


def _known(field: Any) -> _Field:
    """Return what is known of a field from now on."""
    has_messages = field.message_type is not None
    if field.name in _NUMBERED:
        take = _numbered
    elif not has_messages:
        take = _values if field.is_repeated else _value
    elif not field.is_repeated:
        take = _message
    elif field.message_type.GetOptions().map_entry:
        take = _map
        has_messages = field.message_type.fields_by_name["value"].message_type is not None
    else:
        take = _messages
    known = _Field(field.name, b"%d" % field.number, field.name in _LEFT_OUT, take, has_messages)
    _FIELDS[field] = known
    return known


def _numbered(walk: _Walk, field: _Field, value: Any) -> None:
    walk.take(walk.number(field.name, value))


def _value(walk: _Walk, _: _Field, value: Any) -> None:
    walk.value(value)


def _values(walk: _Walk, _: _Field, values: Any) -> None:
    walk.take(b"[%d" % len(values))
    for each in values:
        walk.value(each)


def _message(walk: _Walk, _: _Field, message: Any) -> None:
    walk.message(message)


def _messages(walk: _Walk, _: _Field, messages: Any) -> None:
    for each in messages:
        walk.message(each)


def _map(walk: _Walk, field: _Field, entries: Any) -> None:
    walk.take(b"[%d" % len(entries))
    for key in sorted(entries):
        walk.value(key)
        if field.has_messages:
            walk.message(entries[key])
        else:
            walk.value(entries[key])


def _function(walk: _Walk, function: Any) -> None:
    """Take a function of Spark's: of one that draws, the seed does not count."""
    arguments = list(function.arguments)
    if function.function_name in _SEEDED and arguments and arguments[-1].HasField("literal"):
        del arguments[-1]
    walk.value(function.function_name)
    walk.take(b"%d%d%d" % (function.is_distinct, function.is_user_defined_function, function.is_internal))
    for each in arguments:
        walk.message(each)


def _variable(walk: _Walk, variable: Any) -> None:
    """Take a variable of a lambda, whose name ends with a number that is counted."""
    for name in variable.name_parts:
        found = _VARIABLE.fullmatch(name)
        if found is None:
            walk.value(name)
        else:
            walk.value(found[1])
            walk.take(walk.number("variable", name))


def _python(walk: _Walk, function: Any) -> None:
    """Take a function of Python: what it does, whatever its pickle says of where it stands."""
    for field, value in function.ListFields():
        known = _FIELDS.get(field) or _known(field)
        walk.take(known.number)
        if known.name == "command":
            content = hashlib.sha256(value).digest()
            walk.take(KNOWN.functions.get(content, content))
        else:
            known.take(walk, known, value)


_FIELDS: dict[Any, _Field] = {}
_TAKES: dict[type, Callable[[_Walk, Any], None] | None] = {}
"""By the kinds of messages, what takes one; None: it is like any other."""
_SPECIAL: dict[str, Callable[[_Walk, Any], None]] = {
    "UnresolvedFunction": _function,
    "UnresolvedNamedLambdaVariable": _variable,
    "PythonUDF": _python,
    "PythonUDTF": _python,
    "PythonDataSource": _python,
}


# ---------------------------------------------------------------- functions of Python


class _Hash:
    """A file of which the digest is kept."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.digest = self._hash.digest

    def write(self, content: Any) -> int:
        self._hash.update(content)
        return len(content)


def knowing_functions(cloudpickle: Any) -> Callable[..., bytes]:
    """Return `dumps` of PySpark's module *cloudpickle*, which also takes in what the functions do that it pickles."""
    dumps: Callable[..., bytes] = cloudpickle.dumps

    class Pickler(cloudpickle.Pickler):
        """Pickles functions without where they stand, and classes without what is drawn for them."""

        def _function_getnewargs(self, func: Any) -> Any:
            arguments = super()._function_getnewargs(func)
            for name in ("__file__", "__path__"):
                arguments[1].pop(name, None)
            return arguments

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, types.CodeType):
                return cloudpickle._code_reduce(obj.replace(co_filename="", co_firstlineno=1, co_linetable=b""))
            reduced = super().reducer_override(obj)
            makes = reduced[0] if isinstance(reduced, tuple) else None
            if makes not in (cloudpickle._make_skeleton_class, cloudpickle._make_skeleton_enum):
                return reduced
            _, arguments, state, *more = reduced
            state[0].pop("__firstlineno__", None)
            return (makes, (*arguments[:-2], "", arguments[-1]), state, *more)

    def dumped(obj: Any, *arguments: Any, **named: Any) -> bytes:
        content = dumps(obj, *arguments, **named)
        known = hashlib.sha256(content).digest()
        if known not in KNOWN.functions:
            hashed = _Hash()
            try:
                Pickler(hashed, *arguments, **named).dump(obj)
            except Exception:
                return content
            _keep(KNOWN.functions, known, hashed.digest())
        return content

    return dumped
