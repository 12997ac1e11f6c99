"""How the process of a program ends when the cluster says that it cannot go on."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from pyspark.sql.connect.proto import ExecutePlanResponse

from onager.scheduler.connect.records import MAX_OPERATIONS
from tests.support.waiting import HANGS_S

CODE = """
import grpc, json, sys
from types import SimpleNamespace
from onager.programs.channels import ERROR
from onager.programs.stub import Stub

class Failed(grpc.RpcError):
    def code(self): return grpc.StatusCode[sys.argv[2]]
    def details(self): return "why it ends"
    def trailing_metadata(self): return [(ERROR, json.dumps({"class": sys.argv[1]}).encode())]

def fail(*_, **__): raise Failed()

try:
    Stub(SimpleNamespace(stub=SimpleNamespace(GetStatus=fail))).GetStatus(None)
finally:
    print("a program that catches everything learns nothing")
"""


@pytest.mark.parametrize(
    ("name", "grpc_code", "exit_code"),
    [
        ("ProgramLimitError", "RESOURCE_EXHAUSTED", 72),
        ("AttemptSupersededError", "FAILED_PRECONDITION", 71),
        ("NotDeterministicError", "FAILED_PRECONDITION", 70),
    ],
)
def test_an_attempt_that_cannot_go_on_ends_at_once_with_the_reason(name, grpc_code, exit_code):
    command = [sys.executable, "-c", CODE, name, grpc_code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == exit_code, done.stderr
    assert "why it ends" in done.stderr
    assert not done.stdout


def test_a_plan_that_is_too_large_is_refused_where_it_is_made():
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    from onager.programs import stub

    with pytest.raises(SparkConnectGrpcException, match="at most 16,777,216 are taken"):
        stub._check_size(SimpleNamespace(ByteSize=lambda: 16 * 1024 * 1024 + 1))
    stub._check_size(SimpleNamespace(ByteSize=lambda: 16 * 1024 * 1024))


def test_of_many_threads_only_as_many_as_may_have_plans_carried_out_until_the_first_rows():
    from onager.programs import stub

    most, at_once, more = MAX_OPERATIONS, [0, 0], threading.Lock()

    def responses():
        with more:
            at_once[0] += 1
            at_once[1] = max(at_once)
        yield ExecutePlanResponse(execution_progress=ExecutePlanResponse.ExecutionProgress())
        time.sleep(0.001)
        with more:
            at_once[0] -= 1
        yield ExecutePlanResponse(arrow_batch=ExecutePlanResponse.ArrowBatch())
        yield ExecutePlanResponse(result_complete=ExecutePlanResponse.ResultComplete())

    threads = [threading.Thread(target=lambda: list(stub._counted(responses()))) for _ in range(3 * most)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(HANGS_S)
    assert 1 < at_once[1] <= most
    # Whoever reads rows may have other plans carried out, however many read.
    reading = [stub._counted(responses()) for _ in range(2 * most)]
    for rows in reading:
        assert next(rows).HasField("execution_progress")
        assert next(rows).HasField("arrow_batch")
    # A plan that fails, or that nobody waits for, counts no more.
    for _ in range(2 * most):
        next(stub._counted(responses())).Clear()
