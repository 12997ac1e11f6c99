"""KEDA's external scaler, called as KEDA calls it."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

from onager.errors import InvalidSettingError
from onager.protocol import externalscaler_pb2 as pb
from onager.protocol import onager_pb2
from onager.protocol.externalscaler_pb2_grpc import ExternalScalerStub
from onager.scheduler.scaler import METRIC, serving_scaler
from onager.scheduler.settings import SchedulerSettings
from tests.integration.scheduler.test_jobs import two_stages
from tests.integration.scheduler.test_metrics import Cluster
from tests.support.etcd.certificates import Authority
from tests.support.fakes.scripted_executor import Client, executor
from tests.support.waiting import HANGS_S, eventually

EXECUTORS = pb.ScaledObjectRef(name="executor", namespace="onager", scalerMetadata={"slotsPerExecutor": "4"})


class Keda:
    """The calls of a trigger; the channel is KEDA's."""

    def __init__(self, port, credentials=None):
        target = f"127.0.0.1:{port}"
        secure = grpc.aio.secure_channel
        self.channel = grpc.aio.insecure_channel(target) if credentials is None else secure(target, credentials)
        self.stub = ExternalScalerStub(self.channel)

    async def wanted(self):
        answer = await self.stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=EXECUTORS, metricName=METRIC))
        (value,) = answer.metricValues
        assert value.metricValue == value.metricValueFloat
        return value.metricValue

    async def is_active(self):
        return (await self.stub.IsActive(EXECUTORS)).result

    async def close(self):
        await self.channel.close()


@asynccontextmanager
async def scaler(served, **settings):
    listen = settings.pop("scaler_listen", "127.0.0.1:0")
    async with serving_scaler(served, SchedulerSettings(scaler_listen=listen, **settings), listen) as port:
        yield port


@pytest.fixture
async def two(tmp_path):
    """Return two schedulers and KEDA's way to each."""
    async with Cluster(tmp_path) as cluster:
        here, there = await cluster.begin(), await cluster.begin()
        async with scaler(here.app) as here_port, scaler(there.app) as there_port:
            ways = Keda(here_port), Keda(there_port)
            yield here, there, *ways
            for keda in ways:
                await keda.close()


async def test_from_no_job_to_no_job_all_schedulers_say_how_many_slots_are_wanted(two):
    here, there, *ways = two
    client = Client(here.address)

    def run(task_set, task):
        return two_stages(width=9)(task_set, task) if task_set.work == onager_pb2.PLAN else None

    async def reported():
        return [(await keda.is_active(), await keda.wanted()) for keda in ways]

    async def is_reported(*expected):
        await eventually(lambda: _equals(reported, [expected] * 2), what=lambda: f"not {expected}")

    await is_reported(False, 0)
    await client.submit("job-1")
    await is_reported(True, 1)  # to be planned
    async with executor(there.address, "e1", run, slots=2):
        await is_reported(True, 9)  # two run, seven wait
        await client.stub.CancelJob(onager_pb2.CancelJobRequest(job_id="job-1", reason="enough"))
        await is_reported(False, 0)
    await client.close()


async def _equals(look, expected):
    return await look() == expected


async def test_a_limited_session_wants_no_more_slots_than_it_may_have(two):
    here, _, keda, other = two
    client = Client(here.address)
    for n in range(3):
        await client.submit(f"job-{n}", **{"onager.session": "etl", "onager.session.max-tasks": "2"})
    for each in (keda, other):
        await eventually(lambda each=each: _equals(each.wanted, 2))
    await client.close()


async def test_a_stream_tells_of_the_first_job_and_of_the_last_ones_end_at_once(two):
    here, there, _, keda = two
    client = Client(here.address)
    stream = keda.stub.StreamIsActive(EXECUTORS)
    assert not (await stream.read()).result
    coming = asyncio.create_task(stream.read())
    await client.submit("job-1")
    assert (await coming).result
    await client.submit("job-2")
    ending = asyncio.create_task(stream.read())
    async with executor(there.address, "e1", two_stages()):
        for job_id in ("job-1", "job-2"):
            await client.wait(job_id)
    assert not (await ending).result
    stream.cancel()
    await client.close()


async def test_the_target_is_the_slots_of_one_executor(two):
    keda = two[2]
    (spec,) = (await keda.stub.GetMetricSpec(EXECUTORS)).metricSpecs
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (METRIC, 4, 4.0)
    (spec,) = (await keda.stub.GetMetricSpec(pb.ScaledObjectRef(name="executor"))).metricSpecs
    assert spec.targetSize == 1


@pytest.mark.parametrize("said", ["0", "-1", "four", "", "٤", "1e3", "9" * 30])
async def test_a_trigger_without_a_number_is_refused(two, said):
    keda = two[2]
    ref = pb.ScaledObjectRef(name="executor", namespace="onager", scalerMetadata={"slotsPerExecutor": said})
    with pytest.raises(grpc.aio.AioRpcError, match="slotsPerExecutor in the metadata of onager/executor") as caught:
        await keda.stub.GetMetricSpec(ref)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_is_no_question_of_keda_is_refused(two):
    keda = two[2]
    with pytest.raises(grpc.aio.AioRpcError, match="onager_slots_wanted is the only one"):
        await keda.stub.GetMetrics(pb.GetMetricsRequest(metricName="jobs"))
    raw = keda.channel.unary_unary("/externalscaler.ExternalScaler/IsActive")
    with pytest.raises(grpc.aio.AioRpcError, match="cannot be decoded"):
        await raw(b"\xff" * 20)
    with pytest.raises(grpc.aio.AioRpcError, match="more than the limit of 16,384") as caught:
        await raw(pb.ScaledObjectRef(name="x" * 20_000).SerializeToString())
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    submit = keda.channel.unary_unary("/onager.v1.OnagerScheduler/ListJobs")
    with pytest.raises(grpc.aio.AioRpcError) as caught:  # the port serves KEDA alone
        await submit(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_over_tls_keda_has_to_show_a_certificate(two, tmp_path):
    here, authority = two[0], Authority(tmp_path)
    server, keda = authority.issue("server", "127.0.0.1"), authority.issue("keda")
    stranger = Authority(tmp_path, "strange").issue("keda")
    served = {
        "tls_cert": server.cert,
        "tls_key": server.key,
        "scaler_tls_client_ca": authority.cacert,
        "scaler_listen": "0.0.0.0:0",
    }

    async def asked(pair):
        shown = (None, None) if pair is None else (pair.key.read_bytes(), pair.cert.read_bytes())
        way = Keda(port, grpc.ssl_channel_credentials(authority.cacert.read_bytes(), *shown))
        try:
            return await way.stub.IsActive(EXECUTORS, timeout=HANGS_S)
        finally:
            await way.close()

    async with scaler(here.app, **served) as port:
        assert not (await asked(keda)).result
        for refused in (None, stranger):
            with pytest.raises(grpc.aio.AioRpcError):
                await asked(refused)


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({}, "--scaler-listen='0.0.0.0:0'.*connections are not encrypted.*SCALER_TLS_CLIENT_CA"),
        ({"scaler_tls_client_ca": "ca.pem"}, "scaler_tls_client_ca='ca.pem'.*it needs --tls-cert"),
    ],
)
async def test_an_open_port_that_others_reach_is_refused(two, settings, reported):
    with pytest.raises(InvalidSettingError, match=reported):
        async with scaler(two[0].app, scaler_listen="0.0.0.0:0", **settings):
            pass
