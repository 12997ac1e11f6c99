"""Reads of the catalog by the worker's threads, through the agent's connections."""

import asyncio

import grpc

from onager.clock import SystemClock
from onager.executor.agent.catalog import CatalogClient
from onager.executor.agent.gateway import SchedulerGateway
from onager.protocol import onager_pb2 as pb
from tests.support.fakes.scripted_gateway import ScriptedGateway, serve
from tests.support.waiting import HANGS_S, eventually


class Keeper(ScriptedGateway):
    """A scheduler with a catalog, which is away for some calls."""

    def __init__(self, *, away: int = 0) -> None:
        super().__init__()
        self.read: list[pb.ReadCatalogRequest] = []
        self.away = away

    async def ReadCatalog(  # noqa: N802
        self, request: pb.ReadCatalogRequest, context: grpc.aio.ServicerContext
    ) -> pb.ReadCatalogResponse:
        self.read.append(request)
        if len(self.read) <= self.away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return pb.ReadCatalogResponse(revision=7)


def client(gateway: SchedulerGateway) -> CatalogClient:
    return CatalogClient(gateway, SystemClock(), executor_id="e1", incarnation="life")


async def test_a_thread_reads_for_its_executor_and_tries_again_while_no_scheduler_answers() -> None:
    keeper = Keeper(away=2)
    server, port = await serve(keeper)
    try:
        async with SchedulerGateway((f"127.0.0.1:{port}",)) as gateway:
            reader = client(gateway)
            answer = await asyncio.to_thread(
                lambda: reader.read(pb.ReadCatalogRequest(keys=["tables/a/b"])).result(HANGS_S)
            )
    finally:
        await server.stop(None)
    assert answer.revision == 7
    assert [(r.executor_id, r.incarnation, list(r.keys)) for r in keeper.read] == [("e1", "life", ["tables/a/b"])] * 3


async def test_a_read_that_is_cancelled_ends() -> None:
    keeper = Keeper(away=1_000)
    server, port = await serve(keeper)
    try:
        async with SchedulerGateway((f"127.0.0.1:{port}",)) as gateway:
            read = client(gateway).read(pb.ReadCatalogRequest(keys=["tables/a/b"]))
            await eventually(lambda: keeper.read)
            assert read.cancel()
            await asyncio.sleep(0)
            before = len(keeper.read)
            await asyncio.sleep(0.5)
            assert len(keeper.read) - before <= 1
    finally:
        await server.stop(None)
