"""Random requests to every method: bytes, and nonsense that is built like the real thing."""

import asyncio
from collections import Counter
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc import StatusCode
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import CHANNEL_OPTIONS
from tests.abuse.conftest import Abused
from tests.abuse.test_requests import GATEWAY, SUBMIT, registration, submission
from tests.support.selection import IS_ALL
from tests.support.waiting import HANGS_S

CALLS = 1000 if IS_ALL else 200
_AT_ONCE = 100
METHODS = [
    (f"{service.full_name}/{method.name}", method.input_type, method.server_streaming)
    for service in pb.DESCRIPTOR.services_by_name.values()
    if service.name != "OnagerExecutor"
    for method in service.methods
]
TEXTS = st.one_of(
    st.sampled_from(
        ["", "job", "abuser", "i1", "spark.x", "a/b", "../..", "\x00", "[" * 2000, "9" * 5000, "Plans/", "x" * 300]
    ),
    st.text(max_size=20),
)
NUMBERS = st.sampled_from([0, 1, 2, 7, 1000, 2**31 - 1])
WIDE = st.one_of(NUMBERS, st.sampled_from([2**32, 2**63 - 1]))


def values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return TEXTS
        case FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=30)
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_MESSAGE:
            return messages(field.message_type, depth + 1)
        case FieldDescriptor.TYPE_UINT64 | FieldDescriptor.TYPE_INT64:
            return WIDE
        case _:
            return NUMBERS


def messages(descriptor: Descriptor, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return nonsense of the type; a few fields each, so that many are drawn in little time."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in descriptor.fields:
        if field.message_type is not None and depth > 3:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = values(field.message_type.fields_by_name["value"], depth)
            fields[field.name] = st.dictionaries(TEXTS, value, max_size=2)
        elif field.is_repeated:
            fields[field.name] = st.lists(values(field, depth), max_size=2)
        else:
            fields[field.name] = values(field, depth)
    made = getattr(pb, descriptor.name)
    return st.fixed_dictionaries({}, optional=fields).map(lambda drawn: made(**_one_of_each(descriptor, drawn)))


def _one_of_each(descriptor: Descriptor, drawn: dict[str, Any]) -> dict[str, Any]:
    """Leave one field of each oneof."""
    for oneof in descriptor.oneofs:
        for field in [f.name for f in oneof.fields if f.name in drawn][1:]:
            del drawn[field]
    return drawn


def requests(descriptor: Descriptor) -> st.SearchStrategy[bytes]:
    nonsense = messages(descriptor).map(lambda message: message.SerializeToString())
    flipped = st.tuples(nonsense, st.integers(0, 10_000), st.integers(0, 255)).map(_flipped)
    return st.one_of(nonsense, nonsense, flipped, st.binary(max_size=60))


def _flipped(drawn: tuple[bytes, int, int]) -> bytes:
    data, at, byte = drawn
    return data and data[: at % len(data)] + bytes([byte]) + data[at % len(data) + 1 :]


def drawn(descriptor: Descriptor, count: int) -> list[bytes]:
    """Draw requests: few by Hypothesis, each of which is used again with bytes of it changed."""
    found: list[bytes] = []

    @settings(
        max_examples=count // 10,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests(descriptor))
    def draw(request: bytes) -> None:
        found.append(request)

    draw()
    return [_flipped((found[n % len(found)], n * 7919, n % 251)) if n >= len(found) else found[n] for n in range(count)]


async def all_of(address: str, path: str, sent: list[bytes], *, is_stream: bool) -> Counter[StatusCode]:
    """Return how the calls ended; an open stream is cancelled after its first message."""
    places = asyncio.Semaphore(_AT_ONCE)
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        unary, stream = channel.unary_unary(f"/{path}"), channel.unary_stream(f"/{path}")

        async def one(request: bytes) -> StatusCode:
            async with places:
                try:
                    if not is_stream:
                        await unary(request, timeout=HANGS_S)
                        return StatusCode.OK
                    call = stream(request, timeout=0.5)
                    await call.read()
                    call.cancel()
                except grpc.aio.AioRpcError as error:
                    code: StatusCode = error.code()
                    return code
                return StatusCode.OK

        return Counter(await asyncio.gather(*map(one, sent)))


@pytest.mark.parametrize(
    ("path", "descriptor", "is_stream"), METHODS, ids=[path.rpartition(".")[2] for path, _, _ in METHODS]
)
def test_no_request_meets_with_a_defect(unnoticed: Abused, path: str, descriptor: Descriptor, is_stream: bool) -> None:  # noqa: FBT001
    # So that calls of executors and about jobs get past the first look-up.
    assert unnoticed.call(f"{GATEWAY}/RegisterExecutor", registration("abuser", slots=8))[0].code is StatusCode.OK
    assert unnoticed.call(SUBMIT, submission("job"))[0].code is StatusCode.OK
    before = unnoticed.log.stat().st_size
    ended = asyncio.run(all_of(unnoticed.address, path, drawn(descriptor, CALLS), is_stream=is_stream))
    assert sum(ended.values()) == CALLS
    text = unnoticed.log.read_text()[before:]
    assert not ended.keys() & {StatusCode.INTERNAL, StatusCode.UNKNOWN}, (ended, text[-3000:])
    assert "Traceback" not in text
    assert "call_failed" not in text
