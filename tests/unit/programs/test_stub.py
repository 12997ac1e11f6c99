"""How the process of a program ends when the cluster says that it cannot go on."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

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
