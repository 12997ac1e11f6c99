"""The list of executors that clients see, in pages."""

from collections import Counter

from onager.errors import InvalidRequestError
from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.records import SHOWN_STATES


def list_executors(
    executors: ExecutorManager, request: pb.ListExecutorsRequest, now_ms: int
) -> pb.ListExecutorsResponse:
    """Return the executors that are asked for, by id, and how many there are of each state.

    Raises `InvalidRequestError` for a state that no executor can have.
    """
    if request.state and request.state not in SHOWN_STATES:
        raise InvalidRequestError(f"{request.state!r} is not an executor's state; use {', '.join(SHOWN_STATES)}")
    records = executors.registry.that_run(programs=False)
    states = {record.executor_id: record.state_and_reason(now_ms)[0] for record in records}
    wanted = [
        record
        for record in records
        if record.executor_id > request.after and request.state in ("", states[record.executor_id])
    ]
    wanted.sort(key=lambda record: record.executor_id)
    shown = wanted[: request.limit or None]
    return pb.ListExecutorsResponse(
        executors=[executors.info(record, now_ms) for record in shown],
        states=Counter(states.values()),
        now_ms=now_ms,
        more=len(shown) < len(wanted),
    )
