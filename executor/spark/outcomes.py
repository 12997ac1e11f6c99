"""The news that the kernel has of running tasks, taken in one call for all of them."""

import json
from typing import Any

_LENGTH_BYTES = 4


def take(kernel: Any, wait_ms: int) -> list[tuple[dict[str, Any], bytes]]:
    """Wait up to *wait_ms* for news; return events in order, each with its inline result (or nothing)."""
    return unpack(bytes(kernel.take(wait_ms)))


def unpack(data: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """Return the events that the kernel packed: the length of a JSON list, the list, then the inline results."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    events = []
    for event in json.loads(data[_LENGTH_BYTES:end]):
        size = event.pop("inline_bytes", 0)
        events.append((event, data[end : end + size]))
        end += size
    return events
