"""Executors in push mode serve by the same rules as schedulers: TLS, certificates of callers, tokens."""

import asyncio
from pathlib import Path

import grpc
import pytest

import onager
from onager.access_errors import TokenMissingError
from onager.errors import InvalidSettingError, TlsError
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import CHANNEL_OPTIONS
from onager.protocol.onager_pb2_grpc import OnagerExecutorStub
from onager.protocol.security import ClientAccess, ClientSecurity
from onager.protocol.status import from_rpc_error
from tests.integration.security.parts import new_token, scheduler
from tests.support.etcd.certificates import Authority
from tests.support.fakes.agents import agent
from tests.support.fakes.scripted_executor import arrow_stream, identity, plan_outcome, success
from tests.support.waiting import HANGS_S


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def token_file(tmp_path) -> Path:
    new_token(tmp_path / "token")
    return tmp_path / "token"


def run(task_set, task):
    """Plan one task, which returns two numbers."""
    if task_set.work != pb.PLAN:
        return success(task_set, task, "e1", inline=arrow_stream([4, 2]), rows=2)
    report = pb.TaskReport(task=identity(task_set, task))
    report.success.plan.CopyFrom(plan_outcome([(1, 1, "result")]))
    return report


async def called(address, access):
    """Send an executor nothing to do; return what is made of the refusal, or None."""
    request = pb.AnswerPollRequest(executor_id="e1", incarnation="another")
    async with access.aio_channel(address) as channel:
        try:
            await OnagerExecutorStub(channel).AnswerPoll(request, metadata=access.metadata(), timeout=HANGS_S)
        except grpc.aio.AioRpcError as error:
            return access.error_of(error, address)


async def test_a_job_runs_where_all_show_certificates_and_a_token(tmp_path, authority, token_file):
    served, own = authority.issue("scheduler", "127.0.0.1"), authority.issue("executor", "127.0.0.1")
    flags = ("--tls-cert", served.cert, "--tls-key", served.key, "--tls-client-ca", authority.cacert)
    mine = {"tls_ca": authority.cacert, "tls_cert": own.cert, "tls_key": own.key, "auth_token_file": token_file}
    security = ClientSecurity(**mine)
    with scheduler(tmp_path, *flags, "--auth-token-file", token_file) as started:
        address = started.address()
        access = ClientAccess(security, [address])
        async with agent(
            [address], "e1", run, mode="push", access=access, tls_client_ca=authority.cacert, **mine
        ) as e1:

            def submitted():
                with onager.connect(address, security=security) as client:
                    return client.sql("SELECT 1").to_arrow(), [e.address for e in client.executors()]

            table, (reached,) = await asyncio.to_thread(submitted)
            assert table.column(0).to_pylist() == [4, 2]
            assert e1.worker.ran

            # A caller that lacks one of them is refused at the executor's own port.
            without_token = ClientAccess(ClientSecurity(**{**mine, "auth_token_file": None}), [])
            assert isinstance(await called(reached, without_token), TokenMissingError)
            unnamed = ClientAccess(ClientSecurity(tls_ca=authority.cacert, auth_token_file=token_file), [])
            assert isinstance(await called(reached, unnamed), TlsError)
            async with grpc.aio.insecure_channel(reached, options=CHANNEL_OPTIONS) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await OnagerExecutorStub(channel).AnswerPoll(pb.AnswerPollRequest(), timeout=HANGS_S)
            assert from_rpc_error(raised.value, reached).retryable
            assert "not registered in this incarnation" in str(await called(reached, access))


def test_plaintext_goes_to_no_executor_elsewhere():
    access = ClientAccess(ClientSecurity(), ())
    access.check("127.0.0.1:1")
    with pytest.raises(InvalidSettingError, match="would not be encrypted"):
        access.check("executor.example:50060")
    ClientAccess(ClientSecurity(insecure=True), ()).check("executor.example:50060")
