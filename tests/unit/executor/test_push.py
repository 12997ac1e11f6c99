"""The agent in push mode: it receives tasks on its own port, and reports to the drivers of jobs."""

import asyncio
import signal
import socket
from contextlib import asynccontextmanager

import grpc
import pytest

from onager.errors import InvalidSettingError
from onager.executor import main
from onager.executor.agent.endings import Ending
from onager.executor.agent.push import Port
from onager.executor.settings import ExecutorSettings
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorStub
from onager.protocol.ports import check_address
from onager.protocol.security import ServerAccess
from onager.protocol.task_keys import task_id, task_key
from tests.support.fakes.scripted_gateway import key, rig, serve, task_set
from tests.support.waiting import HANGS_S, eventually


@asynccontextmanager
async def pushed(**settings):
    async with (
        rig(mode="push", **settings) as r,
        grpc.aio.insecure_channel(r.address) as channel,
    ):
        await eventually(lambda: any(gateway.polls for gateway in r.gateways))
        yield r, OnagerExecutorStub(channel)


def answer(r, *task_sets, life="life-1", number=None, **more):
    """Return the answer to the latest poll."""
    polls = [poll.list_number for gateway in r.gateways for poll in gateway.polls]
    return pb.AnswerPollRequest(
        executor_id="e-1",
        incarnation=life,
        list_number=max(polls) if number is None else number,
        answer=pb.PollWorkResponse(task_sets=task_sets, **more),
    )


async def test_it_registers_with_its_address_and_polls_with_all_that_it_has():
    async with pushed(poll_wait_ms=30_000) as (r, stub):
        (request,) = r.gateway.registrations
        assert (request.mode, request.address) == ("push", r.address)
        (poll,) = r.gateway.polls
        assert (poll.free_slots, list(poll.running)) == (2, [])
        await stub.AnswerPoll(answer(r, task_set(0)))
        await eventually(lambda: r.worker.started == [key(0)])
        await eventually(lambda: len(r.gateway.polls) == 2)
        assert (r.gateway.polls[1].free_slots, [task_key(t) for t in r.gateway.polls[1].running]) == (1, [key(0)])


async def test_a_poll_waits_even_without_a_free_slot_so_that_tasks_are_stopped_at_once():
    async with pushed(poll_wait_ms=30_000, slots=1) as (r, stub):
        await stub.AnswerPoll(answer(r, task_set(0)))
        await eventually(lambda: len(r.gateway.polls) == 2 and r.worker.started)
        assert (r.gateway.polls[1].free_slots, r.gateway.polls[1].wait_ms) == (0, 30_000)
        await stub.AnswerPoll(answer(r, cancel=[task_id(key(0))]))
        await eventually(lambda: r.gateway.reports)
        assert r.worker.cancelled == [key(0)]
        assert r.gateway.outcomes() == {key(0): "task_killed"}


async def test_a_poll_that_nobody_answers_is_made_again():
    async with pushed(poll_wait_ms=100) as (r, _):
        await eventually(lambda: len(r.gateway.polls) > 2)


async def test_a_poll_is_made_elsewhere_as_soon_as_its_scheduler_has_died():
    async with pushed(poll_wait_ms=30_000, schedulers=2) as (r, _):
        polled = next(n for n, gateway in enumerate(r.gateways) if gateway.polls)
        await r.servers[polled].stop(None)
        await eventually(lambda: r.gateways[1 - polled].polls)


async def test_an_answer_that_comes_twice_or_late_runs_once():
    async with pushed(poll_wait_ms=100) as (r, stub):
        first = answer(r, task_set(0))
        await eventually(lambda: len(r.gateway.polls) > 1)
        for _ in range(2):
            await stub.AnswerPoll(first)
        await eventually(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await eventually(lambda: r.gateway.reports)
        await stub.AnswerPoll(first)
        await stub.AnswerPoll(answer(r, task_set(1)))
        await eventually(lambda: len(r.worker.started) == 2)
        assert r.worker.started == [key(0), key(1)]


@pytest.mark.parametrize(("executor_id", "life"), [("e-1", "life-0"), ("e-2", "life-1")])
async def test_an_answer_for_another_executor_is_refused(executor_id, life):
    async with pushed() as (r, stub):
        request = answer(r, task_set(0), life=life)
        request.executor_id = executor_id
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.AnswerPoll(request)
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
        assert not r.worker.started


async def test_reports_go_to_the_driver_of_the_job():
    async with pushed(schedulers=2, slots=4) as (r, stub):
        addresses = [f"127.0.0.1:{port}" for port in ports(r)]
        await stub.AnswerPoll(answer(r, task_set(0, reply_to=addresses[0]), task_set(1, reply_to=addresses[1])))
        await eventually(lambda: len(r.worker.started) == 2)
        for n in range(2):
            r.worker.succeed(key(n))
        await eventually(lambda: all(gateway.reports for gateway in r.gateways))
        for n in range(2):
            assert r.gateways[n].reported() == [key(n)]


async def test_a_driver_that_has_died_is_skipped():
    async with pushed() as (r, stub):
        server, port = await serve(r.gateway)
        await server.stop(None)
        await stub.AnswerPoll(answer(r, task_set(0, reply_to=f"127.0.0.1:{port}")))
        await eventually(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await eventually(lambda: r.gateway.reports)
        assert r.gateway.reported() == [key(0)]


async def test_a_driver_that_hangs_delays_a_report_by_a_second():
    async with pushed(schedulers=2) as (r, stub):

        async def hang(request, context):
            await asyncio.sleep(30)

        for number, gateway in enumerate(r.gateways):
            if not gateway.polls:
                gateway.before["report"] = hang
                silent = number
        await stub.AnswerPoll(answer(r, task_set(0, reply_to=f"127.0.0.1:{ports(r)[silent]}")))
        await eventually(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await eventually(lambda: r.gateways[1 - silent].reports)
        assert r.gateways[1 - silent].reported() == [key(0)]


async def test_a_draining_executor_takes_nothing_and_ends_when_it_has_reported():
    async with pushed() as (r, stub):
        await stub.AnswerPoll(answer(r, task_set(0)))
        await eventually(lambda: r.worker.started)
        r.agent.request_drain()
        await eventually(lambda: r.gateway.heartbeats[-1].draining)
        await stub.AnswerPoll(answer(r, task_set(1)))
        await eventually(lambda: key(1) in r.gateway.reported())
        r.worker.succeed(key(0))
        async with asyncio.timeout(HANGS_S):
            outcome = await r.outcome
        assert outcome.ending is Ending.DRAINED
        assert r.gateway.outcomes() == {key(0): "success", key(1): "task_killed"}
        assert {request.freed_slots for request in r.gateway.reports} == {0}
        assert r.worker.started == [key(0)]
        assert r.gateway.goodbyes


async def test_a_port_that_is_taken_is_named():
    async with pushed() as (r, _):
        settings = ExecutorSettings(exchange_dir="/nowhere", mode="push", listen=r.address)
        with pytest.raises(InvalidSettingError, match="the address cannot be used"):
            Port(settings, ServerAccess(settings.server_security, settings.listen))


@pytest.mark.parametrize("listen", ["192.0.2.1:0", "no-such-host.invalid:0"])
def test_an_address_that_is_not_ours_is_refused_before_anything_is_started(listen):
    with pytest.raises(InvalidSettingError, match=f"listen.*{listen}.*cannot be used"):
        check_address("--listen", listen)


def test_a_port_is_looked_at_before_anything_is_started():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidSettingError, match="another process listens there"):
            check_address("--listen", listen)
    check_address("--listen", listen)
    check_address("--listen", "127.0.0.1:0")
    check_address("--listen", "[::1]:0")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "push", "listen": "192.0.2.1:0", "insecure": True}, "the address cannot be used"),
        ({"mode": "push", "auth_token_file": "/nowhere/token"}, "/nowhere/token"),
        ({"tls_ca": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"tls_cert": "/nowhere/cert.pem", "tls_key": "/nowhere/key.pem", "tls_ca": "/nowhere/ca"}, "/nowhere/"),
        ({"mode": "push", "tls_client_ca": "/nowhere/clients.pem"}, "tls"),
        ({"exchange_dir": "/nowhere"}, "exchange directory /nowhere is not there"),
    ],
)
def test_invalid_settings_are_reported_before_spark_starts(settings, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(main, "configure_logging", lambda *_: None)

    def start(_):
        raise AssertionError("Spark was started")

    given = ExecutorSettings(**{"exchange_dir": str(tmp_path), **settings})
    assert main.run(given, start) == main.EXIT_REFUSED
    assert words in capsys.readouterr().err


def test_other_machines_are_served_only_with_tls_and_a_name():
    settings = ExecutorSettings(exchange_dir="/nowhere", mode="push", listen="0.0.0.0:0")
    with pytest.raises(InvalidSettingError, match=r"--tls-cert FILE and --tls-key FILE.*--auth-token-file FILE"):
        ServerAccess(settings.server_security, settings.listen)
    assert ":17" in settings.advertised(17)
    assert settings.model_copy(update={"advertise": "e.example:5"}).advertised(17) == "e.example:5"


def ports(r):
    return [int(address.rpartition(":")[2]) for address in r.agent._gateway.addresses.split(",")]
