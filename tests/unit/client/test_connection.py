"""Calls find a scheduler that answers, and errors arrive as they were raised."""

import threading

import pytest

from onager.client.connection import parse_addresses
from onager.errors import (
    InvalidSettingError,
    JobConflictError,
    JobNotFoundError,
    OutcomeUnknownError,
    SchedulerUnreachableError,
    StateUnavailableError,
    VersionMismatchError,
)
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from tests.support.fakes.scheduler import FakeScheduler
from tests.support.processes.children import free_port
from tests.support.waiting import FOR_EVER_S


def _free_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize("text", ["", " , ", "host", "host:", ":50", "h:0", "h:65536", "h:1,h2"])
def test_addresses_that_cannot_be_are_refused(text):
    with pytest.raises(InvalidSettingError):
        parse_addresses(text)


def test_addresses_are_split_at_commas():
    assert parse_addresses("a:1, b:2,") == ("a:1", "b:2")
    assert parse_addresses(["[::1]:5"]) == ("[::1]:5",)


def test_nobody_there_is_said_soon_and_names_every_address(connect):
    one, two = _free_address(), _free_address()
    with pytest.raises(SchedulerUnreachableError, match=f"{one},{two}.*Connection refused"):
        connect(one, two, retry_timeout_s=FOR_EVER_S).executors()


def test_the_next_address_is_tried_when_one_is_dead(connect, scheduler):
    client = connect(_free_address(), scheduler.address)
    assert client.executors()[0].executor_id == "e1"
    assert client.executors()[0].executor_id == "e1"


def test_a_scheduler_that_dies_is_replaced_by_the_next(connect, scheduler):
    other = FakeScheduler(scheduler.jobs)
    other.address = other.start()
    try:
        client = connect(scheduler.address, other.address)
        job = client.sql("SELECT 1")
        scheduler.stop()
        second = client.sql("SELECT 2")
        assert set(other.jobs) == {job.id, second.id}
        assert [method for method, _ in other.calls] == ["SubmitJob"]
    finally:
        other.stop()


def test_a_restart_of_the_only_scheduler_goes_unnoticed(connect, scheduler):
    client = connect(scheduler.address, retry_timeout_s=FOR_EVER_S)
    client.executors()
    scheduler.stop()
    again = FakeScheduler()
    timer = threading.Timer(1.0, again.start, [scheduler.address])
    timer.start()
    try:
        assert client.executors()
    finally:
        timer.join()
        again.stop()


@pytest.mark.parametrize("error", [StateUnavailableError, OutcomeUnknownError])
def test_a_submission_is_repeated_under_the_same_id(connect, scheduler, error):
    failures = iter([error("the store does not answer")] * 2)

    def fail_twice(method: str) -> None:
        if method == "SubmitJob" and (error := next(failures, None)):
            raise error

    scheduler.on_call = fail_twice
    job = connect(scheduler.address).sql("SELECT 1")
    requests = [request for method, request in scheduler.calls if method == "SubmitJob"]
    assert len(requests) == 3
    assert {request.job_id for request in requests} == {job.id}
    assert requests[0].protocol_version == PROTOCOL_VERSION


def test_an_outage_that_lasts_is_reported_as_what_it_is(connect, scheduler):
    def fail(_: str) -> None:
        raise StateUnavailableError("the store does not answer")

    scheduler.on_call = fail
    with pytest.raises(StateUnavailableError, match="the store does not answer"):
        connect(scheduler.address, retry_timeout_s=0.5).sql("SELECT 1")


def test_errors_of_the_service_arrive_as_they_were_raised(connect, scheduler):
    client = connect(scheduler.address)
    with pytest.raises(JobNotFoundError) as caught:
        client.job("nobody").detail()
    assert caught.value.job_id == "nobody"
    client.submit(pb.JobSpec(sql=pb.SqlScript(text="SELECT 1")), job_id="j1")
    client.submit(pb.JobSpec(sql=pb.SqlScript(text="SELECT 1")), job_id="j1")
    with pytest.raises(JobConflictError):
        client.submit(pb.JobSpec(sql=pb.SqlScript(text="SELECT 2")), job_id="j1")


def test_another_service_at_the_address_is_named(connect):
    from concurrent import futures

    import grpc

    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(VersionMismatchError, match="not an Onager scheduler"):
            connect(f"127.0.0.1:{port}").executors()
    finally:
        server.stop(None).wait()


def test_a_closed_client_does_not_wait(connect):
    client = connect(_free_address(), connect_timeout_s=FOR_EVER_S)
    threading.Timer(0.3, client.close).start()
    with pytest.raises(Exception, match=r"closed|refused|Cancel|CANCELLED"):
        client.executors()
