"""The agent in push mode: what schedulers send it over its own port, and whom it tells what became of it."""

import asyncio
import signal
import socket
from contextlib import asynccontextmanager

import grpc
import pytest

from onager.errors import InvalidSettingError
from onager.executor import main
from onager.executor.agent.agent import Ending
from onager.executor.agent.push import Port
from onager.executor.settings import ExecutorSettings
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorStub
from onager.protocol.ports import check_address
from onager.protocol.security import ServerAccess
from onager.protocol.task_keys import task_id, task_key
from tests.support.fakes.scripted_gateway import PLAN_BLOB, PLAN_DIGEST, key, rig, serve, task_set, until


@asynccontextmanager
async def pushed(**settings):
    async with (
        rig(mode="push", **settings) as r,
        grpc.aio.insecure_channel(r.address) as channel,
    ):
        await until(lambda: r.gateway.heartbeats)
        yield r, OnagerExecutorStub(channel)


def launch(*task_sets, life="life-1", holder="s-1", reply_to="", blobs=()):
    return pb.LaunchTasksRequest(
        executor_id="e-1", incarnation=life, task_sets=task_sets, holder=holder, reply_to=reply_to, blobs=blobs
    )


def keys(tasks):
    return [task_key(task) for task in tasks]


async def test_it_registers_with_its_mode_and_address_and_asks_for_nothing():
    async with pushed() as (r, stub):
        (request,) = r.gateway.registrations
        assert (request.mode, request.address) == ("push", r.address)
        await stub.LaunchTasks(launch(task_set(0)))
        await until(lambda: r.worker.started == [key(0)])
        r.worker.succeed(key(0))
        await until(lambda: r.gateway.reports)
        assert not r.gateway.polls


async def test_a_plan_that_came_with_the_launch_is_not_fetched():
    async with pushed() as (r, stub):
        blobs = [pb.Blob(digest=PLAN_DIGEST, content=PLAN_BLOB)]
        await stub.LaunchTasks(launch(task_set(0), blobs=blobs))
        await stub.LaunchTasks(launch(task_set(1)))
        await until(lambda: len(r.worker.started) == 2)
        assert not r.gateway.blob_requests


async def test_a_plan_that_is_not_what_it_is_called_is_fetched():
    async with pushed() as (r, stub):
        await stub.LaunchTasks(launch(task_set(0), blobs=[pb.Blob(digest=PLAN_DIGEST, content=b"another")]))
        await until(lambda: r.worker.started)
        assert r.gateway.blob_requests == [PLAN_DIGEST]


async def test_a_full_executor_refuses_what_it_has_no_slot_for():
    async with pushed(slots=2) as (r, stub):
        answer = await stub.LaunchTasks(launch(task_set(0, 1, 2)))
        assert keys(answer.refused) == [key(2)]
        assert answer.reason == "the executor has no slot for the task"
        await until(lambda: len(r.worker.started) == 2)
        r.worker.succeed(key(0))
        await until(lambda: r.gateway.reports)
        assert not (await stub.LaunchTasks(launch(task_set(2)))).refused


async def test_a_launch_that_comes_twice_runs_once():
    async with pushed() as (r, stub):
        for _ in range(2):
            assert not (await stub.LaunchTasks(launch(task_set(0)))).refused
        await until(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await until(lambda: r.gateway.reports)
        await asyncio.sleep(0.05)
        answer = await stub.LaunchTasks(launch(task_set(0)))
        assert (keys(answer.over), keys(answer.refused)) == ([key(0)], [])
        assert r.worker.started == [key(0)]


@pytest.mark.parametrize(("executor_id", "life"), [("e-1", "life-0"), ("e-2", "life-1")])
async def test_a_launch_or_cancellation_for_somebody_else_is_refused(executor_id, life):
    async with pushed() as (r, stub):
        for call, request in (
            (stub.LaunchTasks, pb.LaunchTasksRequest(task_sets=[task_set(0)])),
            (stub.CancelTasks, pb.CancelTasksRequest(tasks=[task_id(key(0))])),
        ):
            request.executor_id, request.incarnation = executor_id, life
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call(request)
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
        assert not r.worker.started


async def test_a_running_task_is_cancelled_at_once():
    async with pushed() as (r, stub):
        await stub.LaunchTasks(launch(task_set(0)))
        await until(lambda: r.worker.started)
        await stub.CancelTasks(pb.CancelTasksRequest(executor_id="e-1", incarnation="life-1", tasks=[task_id(key(0))]))
        await until(lambda: r.gateway.reports)
        assert r.worker.cancelled == [key(0)]
        assert r.gateway.outcomes() == {key(0): "task_killed"}


async def test_reports_go_to_who_launched_and_name_whose_slot_it_was():
    async with pushed(schedulers=2, slots=4) as (r, stub):
        addresses = [f"127.0.0.1:{port}" for port in ports(r)]
        await stub.LaunchTasks(launch(task_set(0), holder="one", reply_to=addresses[0]))
        await stub.LaunchTasks(launch(task_set(1), holder="two", reply_to=addresses[1]))
        await until(lambda: len(r.worker.started) == 2)
        for n in range(2):
            r.worker.succeed(key(n))
        await until(lambda: all(gateway.reports for gateway in r.gateways))
        for n, holder in enumerate(("one", "two")):
            (request,) = r.gateways[n].reports
            assert [(task_key(report.task), report.holder) for report in request.reports] == [(key(n), holder)]
            assert request.freed_slots == 1


async def test_a_launcher_that_is_gone_is_passed_over():
    async with pushed() as (r, stub):
        server, port = await serve(r.gateway)
        await server.stop(None)
        await stub.LaunchTasks(launch(task_set(0), reply_to=f"127.0.0.1:{port}"))
        await until(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await until(lambda: r.gateway.reports)
        assert r.gateway.reported() == [key(0)]


async def test_a_launcher_that_hangs_delays_a_report_by_a_second():
    async with pushed(schedulers=2) as (r, stub):

        async def hang(request, context):
            await asyncio.sleep(30)

        r.gateways[1].before["report"] = hang
        await stub.LaunchTasks(launch(task_set(0), reply_to=f"127.0.0.1:{ports(r)[1]}"))
        await until(lambda: r.worker.started)
        r.worker.succeed(key(0))
        await until(lambda: r.gateways[0].reports, within_s=3.0)
        assert r.gateways[0].reported() == [key(0)]


async def test_heartbeats_carry_numbered_lists_and_bring_clean_ups():
    async with pushed() as (r, stub):
        await stub.LaunchTasks(launch(task_set(0)))
        await until(lambda: r.gateway.heartbeats[-1].running)
        numbers = [request.list_number for request in r.gateway.heartbeats]
        assert numbers == list(range(1, len(numbers) + 1))
        r.gateway.clean_ups = [pb.CleanUp(job_id="job-0")]
        await until(lambda: r.worker.cleaned == ["job-0"])
        await until(lambda: any("job-0" in request.cleaned_up for request in r.gateway.heartbeats))
        done = len(r.gateway.heartbeats)
        await until(lambda: len(r.gateway.heartbeats) > done + 1)
        assert not r.gateway.heartbeats[-1].cleaned_up


async def test_a_draining_executor_takes_nothing_and_ends_when_it_has_reported():
    async with pushed() as (r, stub):
        await stub.LaunchTasks(launch(task_set(0)))
        await until(lambda: r.worker.started)
        r.agent.request_drain()
        await until(lambda: r.gateway.heartbeats[-1].draining)
        answer = await stub.LaunchTasks(launch(task_set(1)))
        assert (keys(answer.refused), answer.reason) == ([key(1)], "the executor is leaving")
        r.worker.succeed(key(0))
        async with asyncio.timeout(5):
            outcome = await r.outcome
        assert outcome.ending is Ending.DRAINED
        assert [request.freed_slots for request in r.gateway.reports] == [0]
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
def test_what_can_be_known_to_be_wrong_is_told_before_spark_is_started(settings, words, tmp_path, capsys, monkeypatch):
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
