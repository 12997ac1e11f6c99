"""A process that hangs sends nothing and closes nothing: the other end of its connections gives up by its pings."""

import asyncio
import signal
import sys

import grpc
import pytest

from onager.protocol.limits import CHANNEL_OPTIONS, SERVER_OPTIONS

NOTICED_S = 30.0
"""Twice what the pings take; gRPC's own limit, which held back all others, is a minute."""

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


async def test_a_client_leaves_a_server_that_hangs(started):
    server, port = await started(SERVER)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
        call = channel.unary_stream("/Test/Ticks")(b"")
        for _ in range(20):
            await call.read()
        server.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(NOTICED_S):
            with pytest.raises(grpc.aio.AioRpcError) as left:
                await _read_all(call)
    assert left.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_leaves_a_client_that_hangs(started):
    is_over = asyncio.Event()

    async def ticks(_, context):
        context.add_done_callback(lambda _: is_over.set())
        while True:
            yield b"x" * 20_000
            await asyncio.sleep(0.01)

    server = grpc.aio.server(options=SERVER_OPTIONS)
    methods = {"Ticks": grpc.unary_stream_rpc_method_handler(ticks)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        client, _ = await started(CLIENT, f"127.0.0.1:{port}")
        client.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(NOTICED_S):
            await is_over.wait()
    finally:
        await server.stop(None)
