"""Checks messages against `FIELD_LIMITS`: decoded ones field by field, encoded ones by their number of parts."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from onager.errors import InvalidRequestError
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import (
    FIELD_LIMITS,
    PART,
    PLAIN,
    Bytes,
    Limit,
    Many,
    Number,
    Pairs,
    Part,
    Plain,
    Text,
    Unused,
)

_Check = Callable[[Any, str], None]
"""Checks a message; the second argument is its place in the request."""
_SHOWN_CHARS: Final = 80
_VARINT, _DELIMITED, _GROUP, _END_OF_GROUP = 0, 2, 3, 4
_SIZES: Final = {1: 8, 5: 4}
"""The sizes of unpacked numbers, by their wire type."""
_FIELDS_PER_PART: Final = 8
_UNSIGNED: Final = (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64)
_TEXTS: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def check(message: Any, where: str) -> None:
    """Raise `InvalidRequestError`, which names field, size and limit, if *message* breaks the limits.

    Fields that may be cut are cut in *message*. A task's report that breaks the limits becomes a failure of the task:
    the executor has nothing else to report, and its other reports are sound.
    """
    _check_of(message.DESCRIPTOR)(message, where)


def too_much(where: str, size: int, unit: str, most: int) -> InvalidRequestError:
    """Return the error for a field that is too large."""
    return InvalidRequestError(f"{where} has {size:,} {unit}, more than the limit of {most:,}")


def limit_of(message: Descriptor, field: FieldDescriptor) -> Limit:
    """Return the limit of a field of *message*; `KeyError` for a field that must have an entry in the table."""
    limits = FIELD_LIMITS.get(message.name, {})
    if field.name in limits or field.is_repeated or field.type in _TEXTS:
        return limits[field.name]
    return PLAIN if field.message_type is None else PART


@cache
def _check_of(descriptor: Descriptor) -> _Check:
    """Return the check of messages of a type; fields without limits cost nothing.

    Every task's report passes here, so it is one expression over all fields, compiled from their names and limits. It
    calls a field's own check only where there may be something to refuse or to cut.
    """
    checks: dict[str, _Check] = {}
    pieces = []
    for field in descriptor.fields:
        name, limit = field.name, limit_of(descriptor, field)
        check = f"check_{name}"
        if isinstance(limit, Part):
            checks[check] = _check_of(field.message_type)
            pieces.append(f'message.HasField("{name}") and {check}(message.{name}, where + ".{name}"),')
        elif (found := _field_check(field, limit)) is not None:
            checks[check] = found
            pieces.append(f"{_suspicion(f'message.{name}', field, limit)} and {check}(message, where),")
    run: _Check = eval(f"lambda message, where: ({' '.join(pieces)})", checks)  # noqa: S307 made of names and numbers
    return _report_check(run) if descriptor.name == "TaskReport" else run


def _suspicion(value: str, field: FieldDescriptor, limit: Limit) -> str:  # noqa: PLR0911 - one for each kind
    """Return the expression that says whether *value* has to be checked: true wherever its check does something."""
    match limit:
        case Unused():
            return f'message.HasField("{field.name}")'
        case Text(is_cut=False, most=most, is_id=True):
            return f'((text := {value}) and (len(text) > {most} or not text.isprintable() or "/" in text))'
        case Text(is_cut=False, most=most, is_line=True):
            return f"(len(text := {value}) > {most} or not text.isprintable())"
        case Text(most=most) | Bytes(most=most):
            return f"len({value}) > {most}"
        case Number(is_cut=is_cut, most=most) if is_cut or field.type in _UNSIGNED:
            return f"{value} > {most}"
        case Number(most=most):
            return f"not 0 <= {value} <= {most}"
        case _:
            return value


def _report_check(run: _Check) -> _Check:
    def check_report(report: Any, where: str) -> None:
        try:
            run(report, where)
        except InvalidRequestError as error:
            _check_of(pb.TaskId.DESCRIPTOR)(report.task, where)
            # Setting the failure clears the success that could not be accepted.
            why = f"what the task reported is refused: {error}"
            report.failure.CopyFrom(pb.Failure(kind="io_error", cause="internal_error", message=why))
            report.started_ms = report.ended_ms = 0

    return check_report


def _field_check(field: FieldDescriptor, limit: Limit) -> _Check | None:
    """Return what is done with a field about which there is a suspicion; None for a field of any value."""
    name = field.name
    match limit:
        case Plain():
            return None
        case Many():
            return _many_check(name, field, limit)
        case Pairs():
            return _pairs_check(name, limit)

    def check_field(message: Any, where: str) -> None:
        match limit:
            case Unused():
                raise InvalidRequestError(f"{where}.{name} belongs to answers: leave it out")
            case Text(is_cut=True, most=most):
                setattr(message, name, getattr(message, name)[:most])
            case Number(is_cut=True, most=most):
                setattr(message, name, most)
            case _:
                _check_value(limit, getattr(message, name), f"{where}.{name}")

    return check_field


def _check_value(limit: Limit, value: Any, where: str) -> None:
    """Raise `InvalidRequestError` if *value* breaks its *limit*."""
    match limit:
        case Text(most=most):
            if len(value) > most:
                raise too_much(where, len(value), "characters", most)
            if (limit.is_id or limit.is_line) and not value.isprintable():
                raise InvalidRequestError(
                    f"{where} must be one line of printable characters, not {value[:_SHOWN_CHARS]!r}"
                )
            if limit.is_id and "/" in value:
                raise InvalidRequestError(f"{where} names something and has no slash, not {value[:_SHOWN_CHARS]!r}")
        case Bytes(most=most):
            if len(value) > most:
                raise too_much(where, len(value), "bytes", most)
        case Number(most=most):
            if not 0 <= value <= most:
                raise InvalidRequestError(f"{where} is {value:,}: give 0 to {most:,}")


def _many_check(name: str, field: FieldDescriptor, limit: Many) -> _Check:
    most, is_cut = limit.most, limit.is_cut
    is_part = isinstance(limit.each, Part)
    each = _check_of(field.message_type) if is_part else partial(_check_value, limit.each)
    suspicion = "True" if is_part else _suspicion("value", field, limit.each)
    suspects = eval(f"lambda values: [value for value in values if {suspicion}]")  # noqa: S307 as above

    def check_many(message: Any, where: str) -> None:
        values = getattr(message, name)
        if len(values) > most:
            if not is_cut:
                raise too_much(f"{where}.{name}", len(values), "entries", most)
            del values[most:]
        if values:
            place = f"{where}.{name}[]"
            for value in suspects(values):
                each(value, place)

    return check_many


def _pairs_check(name: str, limit: Pairs) -> _Check:
    most_key = limit.key.most
    most_value = limit.value.most if isinstance(limit.value, Text) else None

    def check_pairs(message: Any, where: str) -> None:
        pairs = getattr(message, name)
        if len(pairs) > limit.most:
            raise too_much(f"{where}.{name}", len(pairs), "entries", limit.most)
        for key, value in pairs.items():
            if len(key) > most_key:
                raise too_much(f"a key of {where}.{name}", len(key), "characters", most_key)
            if most_value is not None and len(value) > most_value:
                raise too_much(f"{where}.{name}[{key[:_SHOWN_CHARS]!r}]", len(value), "characters", most_value)

    return check_pairs


# ---------------------------------------------------------------- before decoding


class _Layout:
    """What counting the parts of an encoded message needs to know of its type."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.parts: dict[int, Descriptor] = {}
        self.counted: set[int] = set()
        self.packed: set[int] = set()
        for field in descriptor.fields:
            if field.message_type is not None:
                self.parts[field.number] = field.message_type
            elif field.is_repeated and field.type not in _TEXTS:
                self.packed.add(field.number)
            elif field.is_repeated:
                self.counted.add(field.number)


_layout: Final = cache(_Layout)


def check_parts(data: bytes, descriptor: Descriptor, most: int, advice: str) -> None:  # noqa: C901, PLR0912 - one loop
    """Raise `InvalidRequestError` with *advice* where the encoded message *data* has more than *most* parts.

    An empty part of two bytes becomes fifty times as large when decoded, so this check comes first, and stops at the
    limit. Parts are messages within, entries of maps and lists, and repeated fields. Data that is no message at all is
    left to the decoder to refuse.
    """
    view = memoryview(data)
    parts, fields = most, _FIELDS_PER_PART * most
    segments = [(0, len(data), _layout(descriptor))]
    while segments:
        at, end, layout = segments.pop()
        groups = 0
        while at < end:
            key, at = _varint(view, at, end)
            number, kind = key >> 3, key & 7
            fields -= 1
            if kind == _DELIMITED:
                size, at = _varint(view, at, end)
                if size > end - at:
                    break
                if groups == 0 and (part := layout.parts.get(number)) is not None:
                    parts -= 1
                    segments.append((at, at + size, _layout(part)))
                elif number in layout.counted:
                    parts -= 1
                elif number in layout.packed:
                    fields -= size
                at += size
            elif kind == _VARINT:
                _, at = _varint(view, at, end)
            elif kind in _SIZES:
                at += _SIZES[kind]
            elif kind == _GROUP:
                groups += 1
            elif kind == _END_OF_GROUP:
                groups -= 1
            else:
                break
            if parts < 0 or fields < 0:
                field = layout.descriptor.fields_by_number.get(number)
                last = f"{layout.descriptor.name}.{field.name if field else number}"
                raise InvalidRequestError(
                    f"{descriptor.name} has more than {most:,} parts (messages, entries of maps, texts of lists), "
                    f"the last that were counted in {last}: {advice}"
                )


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, at
        shift += 7
        if shift > 63:  # noqa: PLR2004 - no number is longer
            break
    return 0, end  # cut off: the decoder reports it
