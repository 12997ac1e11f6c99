"""A process that hangs sends nothing and closes nothing: the other end of its connections gives up by its pings.

Each test has two such connections at the same time: the one with our pings ends first. gRPC's own limit, which held
back all others, is four times what the pings take.
"""

import asyncio
import contextlib
import signal
import sys

import grpc
import pytest

from onager.protocol.limits import CHANNEL_OPTIONS, SERVER_OPTIONS
from tests.support.waiting import HANGS_S

WITHOUT_PINGS = {
    options: tuple(option for option in options if "keepalive" not in option[0] and "ping" not in option[0])
    for options in (CHANNEL_OPTIONS, SERVER_OPTIONS)
}

SERVER = """
import asyncio, grpc
from onager.protocol.limits import SERVER_OPTIONS

async def ticks(request, context):
    while True:
        yield b"x" * 20_000
        await asyncio.sleep(0.01)

async def main():
    server = grpc.aio.server(options=SERVER_OPTIONS)
    methods = {"Ticks": grpc.unary_stream_rpc_method_handler(ticks)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", methods),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()

asyncio.run(main())
"""
CLIENT = """
import asyncio, sys, grpc
from onager.protocol.limits import CHANNEL_OPTIONS

async def main():
    async with grpc.aio.insecure_channel(sys.argv[1], options=CHANNEL_OPTIONS) as channel:
        async for _ in channel.unary_stream("/Test/Ticks")(b""):
            print("tick", flush=True)

asyncio.run(main())
"""


@pytest.fixture
async def started():
    processes = []

    async def start(program, *arguments):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, *arguments, stdout=asyncio.subprocess.PIPE
        )
        processes.append(process)
        return process, (await process.stdout.readline()).decode().strip()

    yield start
    for process in processes:
        process.kill()
        await process.wait()


async def _read_all(call):
    while True:
        await call.read()


async def _is_first(one, other):
    ended, rest = await asyncio.wait({one, other}, timeout=HANGS_S, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    return ended == {one}


async def test_a_client_leaves_a_server_that_hangs(started):
    server, port = await started(SERVER)
    reading = []
    async with contextlib.AsyncExitStack() as stack:
        for options in (CHANNEL_OPTIONS, WITHOUT_PINGS[CHANNEL_OPTIONS]):
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
            call = (await stack.enter_async_context(channel)).unary_stream("/Test/Ticks")(b"")
            for _ in range(20):
                await call.read()
            reading.append(asyncio.create_task(_read_all(call)))
        server.send_signal(signal.SIGSTOP)
        assert await _is_first(*reading)
        with pytest.raises(grpc.aio.AioRpcError) as left:
            reading[0].result()
    assert left.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_leaves_a_client_that_hangs(started):
    servers, clients, ends = [], [], []
    try:
        for options in (SERVER_OPTIONS, WITHOUT_PINGS[SERVER_OPTIONS]):
            is_over = asyncio.Event()
            ends.append(asyncio.create_task(is_over.wait()))

            async def ticks(_, context, is_over=is_over):
                context.add_done_callback(lambda _: is_over.set())
                while True:
                    yield b"x" * 20_000
                    await asyncio.sleep(0.01)

            servers.append(grpc.aio.server(options=options))
            methods = {"Ticks": grpc.unary_stream_rpc_method_handler(ticks)}
            servers[-1].add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", methods),))
            port = servers[-1].add_insecure_port("127.0.0.1:0")
            await servers[-1].start()
            clients.append((await started(CLIENT, f"127.0.0.1:{port}"))[0])
        for client in clients:
            client.send_signal(signal.SIGSTOP)
        assert await _is_first(*ends)
    finally:
        for server in servers:
            await server.stop(None)
