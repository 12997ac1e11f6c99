"""Schedulers call each other with the security of their own port, by default."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from onager.clock import SystemClock
from onager.ids import SchedulerId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.app import SchedulerApp
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.server import serve
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.security.parts import new_token
from tests.support.etcd.certificates import Authority
from tests.support.waiting import HANGS_S


@asynccontextmanager
async def scheduler(store, tmp_path, scheduler_id, **settings):
    made = SchedulerApp(
        SchedulerSettings(listen="127.0.0.1:0", exchange_dir=str(tmp_path), scheduler_id=scheduler_id, **settings),
        MemoryBackend(store),
        SystemClock(),
    )
    await made.start()
    server, _ = await serve(made, made.settings.listen)
    loops = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        await server.stop(0.1)
        loops.cancel()
        await asyncio.gather(loops, return_exceptions=True)
        await made.close()


async def forward(tmp_path, here, there):
    """Hand something over from a scheduler with the settings *here* to one with *there*."""
    store = MemoryStore(SystemClock())
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(scheduler(store, tmp_path, "one", **here))
        await stack.enter_async_context(scheduler(store, tmp_path, "two", **there))
        both = asyncio.Event()
        one.schedulers.listen(lambda: both.set() if len(one.schedulers.live) == 2 else None)
        if len(one.schedulers.live) < 2:
            async with asyncio.timeout(HANGS_S):
                await both.wait()
        while True:
            try:
                return await one.forwarding.calls.forward(SchedulerId("two"), pb.ForwardRequest(scheduler_id="one"))
            except NotDrivingError as error:
                if "did not answer in time" not in str(error):  # on a busy machine half a second is soon over
                    raise


@pytest.fixture
def kinds(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.issue("server", "127.0.0.1")
    new_token(tmp_path / "token")
    new_token(tmp_path / "other")
    tls = {"tls_cert": pair.cert, "tls_key": pair.key}
    return {
        "plaintext": {},
        "a token": {"auth_token_file": tmp_path / "token"},
        "a certificate that they share": tls,
        "an authority": {**tls, "outgoing_tls_ca": authority.cacert},
        "certificates of callers and a token": {
            **tls,
            "tls_client_ca": authority.cacert,
            "auth_token_file": tmp_path / "token",
        },
        "another token": {"auth_token_file": tmp_path / "other"},
    }


@pytest.mark.parametrize(
    "kind",
    ["plaintext", "a token", "a certificate that they share", "an authority", "certificates of callers and a token"],
)
async def test_they_reach_each_other(tmp_path, kinds, kind):
    assert isinstance(await forward(tmp_path, kinds[kind], kinds[kind]), pb.ForwardResponse)


@pytest.mark.parametrize(
    ("here", "there", "why"),
    [
        ("plaintext", "a token", "token"),
        ("another token", "a token", "token"),
        ("plaintext", "a certificate that they share", "TLS"),
        ("a certificate that they share", "plaintext", "TLS"),
        ("a certificate that they share", "certificates of callers and a token", "two"),
    ],
)
async def test_a_scheduler_without_matching_security_is_refused_and_skipped(tmp_path, kinds, here, there, why):
    with pytest.raises(NotDrivingError, match=why):
        await forward(tmp_path, kinds[here], kinds[there])
