"""Protocol messages as plain values, for JSON: what the command line prints, and what REST answers."""

import base64
import json
from typing import Any

from google.protobuf.message import Message

from onager.protocol import onager_pb2 as pb


def plain(message: Message) -> dict[str, Any]:
    """Return a protocol message as plain values under the protocol's field names.

    Enumerations become lower-case names, 64-bit numbers stay numbers, and bytes become base64. Unset fields have their
    defaults; unset messages are left out.
    """
    result: dict[str, Any] = {}
    for descriptor in message.DESCRIPTOR.fields:
        value = getattr(message, descriptor.name)
        entry = descriptor.message_type
        if entry is not None and entry.GetOptions().map_entry:
            result[descriptor.name] = dict(value)
        elif descriptor.is_repeated:
            result[descriptor.name] = [_plain_value(descriptor, item) for item in value]
        elif entry is not None and not message.HasField(descriptor.name):
            continue
        else:
            result[descriptor.name] = _plain_value(descriptor, value)
    return result


def _plain_value(descriptor: Any, value: Any) -> Any:
    if descriptor.message_type is not None:
        return plain(value)
    if descriptor.enum_type is not None:
        return descriptor.enum_type.values_by_number[value].name.lower()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def plain_job(detail: pb.JobDetail) -> dict[str, Any]:
    """Return a job as one flat object: its progress, specification, plan and schema."""
    whole = plain(detail)
    progress = whole.pop("progress", {})
    schema = whole.pop("schema_json", "")
    return {**progress, **whole, "schema": json.loads(schema) if schema else None}
