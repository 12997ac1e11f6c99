"""How large the buckets of an output are, in a byte each: about the bytes' logarithm to the base 1.1.

Source: Spark's `MapStatus.compressSize`, up to 10 % too large.
"""

import base64
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from onager.execution_graph.stages import TaskOutput

MAX_BUCKETS: Final = 4096
MAX_SIZES: Final = 1 << 18
"""How many sizes are kept of a stage's outputs: each takes a byte and a third in its job's record."""

_BYTES: Final = (0, *(int(1.1**n) for n in range(1, 256)))
"""The bytes that a size stands for."""


def sizes_text(sizes: bytes, buckets: int, partitions: int) -> str:
    """Return *sizes* as a record has them; empty unless there is one for each bucket, and in all not too many."""
    is_kept = 1 < buckets == len(sizes) <= MAX_BUCKETS and buckets * partitions <= MAX_SIZES
    return base64.b64encode(sizes).decode() if is_kept else ""


def sizes_by_bucket(outputs: Mapping[int, TaskOutput], partitions: int, buckets: int) -> "list[bytes] | None":
    """Return, for each bucket, the sizes of what each of *partitions* gave to it; None if some did not tell."""
    if buckets * partitions > MAX_SIZES:
        return None
    parts: list[bytes] = []
    for partition in range(partitions):
        output = outputs.get(partition)
        if output is None:
            return None
        sizes = base64.b64decode(output.bucket_sizes) if output.bytes or output.bucket_sizes else bytes(buckets)
        if len(sizes) != buckets:
            return None
        parts.append(sizes)
    joined = b"".join(parts)
    return [joined[bucket::buckets] for bucket in range(buckets)]


def total_bytes(sizes: bytes) -> int:
    """Return how many bytes *sizes* stand for in all."""
    return sum(_BYTES[size] * sizes.count(size) for size in set(sizes))  # few of many differ


def even_ranges(sizes: bytes, most_bytes: int) -> list[tuple[int, int]]:
    """Return neighbours among *sizes*, as few of (first, end) as together stand for no more than *most_bytes* each.

    None of them is much larger than the others, where the sizes allow that.
    """
    amounts = [_BYTES[size] for size in sizes]
    found = runs_up_to(amounts, most_bytes)
    for eighths in range(8, 16):
        even = runs_up_to(amounts, sum(amounts) * eighths // (8 * len(found) or 1))
        if len(even) == len(found):
            return even
    return found


def runs_up_to(amounts: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return runs of *amounts*, as long as can be, that add up to no more than *most*, unless one alone is more."""
    if not amounts:
        return []
    starts, filled = [0], 0
    for place, amount in enumerate(amounts):
        filled += amount
        if filled > most and place > starts[-1]:
            starts.append(place)
            filled = amount
    return list(zip(starts, chain(starts[1:], [len(amounts)]), strict=True))
