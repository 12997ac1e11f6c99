"""Operations of one session at many schedulers at once: each is done once, and none is lost."""

import asyncio
import uuid
from types import SimpleNamespace

from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import ConfigRequest, ConfigResponse, ExecutePlanRequest
from onager.scheduler.connect.operations import Operation, Operations
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.sessions import Sessions

ANN = SessionKey("ann", str(uuid.UUID(int=1)))
COUNT = 250


class Executor:
    """Sets what it is asked to set, and makes what it is asked to make, in the session that it is given."""

    calls = 0

    async def call(self, call, _key, _wait_s):
        self.calls += 1
        await asyncio.sleep(0.001)
        applied = pb.ConnectApplied(changes=True, conf=call.session.conf, responses=[b""])
        if call.HasField("configure"):
            (pair,) = ConfigRequest.FromString(call.configure).operation.set.pairs
            applied.conf[pair.key] = pair.value
        else:
            name = ExecutePlanRequest.FromString(call.apply).plan.command.create_dataframe_view.name
            applied.put.add(kind="view", name=name, command=name.encode())
        return pb.ConnectReply(applied=applied)


def scheduler(backend, clock, executor):
    others = dict.fromkeys(("submissions", "queries", "running", "heads", "results", "scripts", "readers"))
    sessions = Sessions(backend, clock, retention_s=3600)
    return SimpleNamespace(
        sessions=sessions,
        operations=Operations(backend, clock, sessions, executor, exchange_dir="/nowhere", **others),
    )


async def test_two_schedulers_lose_nothing_of_a_thousand_commands_at_once(backend, clock):
    executor = Executor()
    schedulers = [scheduler(backend, clock, executor) for _ in range(2)]
    session = await schedulers[0].sessions.open(ANN)

    async def configure(scheduler, number):
        request = ConfigRequest()
        request.operation.set.pairs.add(key=f"k{number}", value=str(number))
        call = pb.ConnectCall(configure=request.SerializeToString())
        await scheduler.operations.change(await scheduler.sessions.open(ANN), call, ConfigResponse())

    async def make(scheduler, number):
        request = ExecutePlanRequest()
        request.plan.command.create_dataframe_view.name = f"v{number}"
        operation = Operation(ANN, session.record.server_side_session_id, str(uuid.UUID(int=number)))
        opened = await scheduler.sessions.open(ANN)
        return [response async for response in scheduler.operations.execute(opened, operation, request, "command")]

    async with asyncio.TaskGroup() as tasks:
        for number in range(COUNT):
            for act in (configure, make):
                tasks.create_task(act(schedulers[number % 2], number))
                tasks.create_task(act(schedulers[(number + 1) % 2], number))  # asked twice, at both
    found = (await schedulers[1].sessions.find(ANN)).message
    assert dict(found.conf) == {f"k{number}": str(number) for number in range(COUNT)}
    assert sorted(entry.name for entry in found.entries) == sorted(f"v{number}" for number in range(COUNT))
    assert executor.calls < 8 * COUNT * 4
