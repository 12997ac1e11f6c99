"""Requests that are drawn from the OpenAPI document: every answer is one that the document tells of."""

import os
import subprocess
import sys

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.selection import IS_ALL, some
from tests.support.waiting import HANGS_S

CHECKS = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
DRAWN = settings(
    max_examples=10 if IS_ALL else 5,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    directory = tmp_path_factory.mktemp("scheduler")
    environment = os.environ | {
        "ONAGER_SCHEDULER_BACKEND": "memory:",
        "ONAGER_SCHEDULER_EXCHANGE_DIR": str(directory / "exchange"),
        "ONAGER_SCHEDULER_LISTEN": "127.0.0.1:0",
        "ONAGER_SCHEDULER_HTTP_LISTEN": "127.0.0.1:0",
        "ONAGER_SCHEDULER_LOG_FORMAT": "json",
    }
    log = directory / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "onager", "scheduler"], env=environment, stdout=subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line.startswith("page at "), log.read_text()
    url = line.removeprefix("page at ").strip().rstrip("/")
    job = {"job_id": "job-1", "spec": {"sql": {"text": "SELECT 1"}}}
    httpx.post(f"{url}/api/v1/jobs", json=job).raise_for_status()
    httpx.post(f"{url}/api/v1/jobs/job-1/cancel").raise_for_status()
    yield url
    process.terminate()
    process.communicate()
    assert process.returncode == 0
    assert "call_failed" not in log.read_text()


@pytest.mark.parametrize("mode", some([GenerationMode.NEGATIVE, GenerationMode.POSITIVE]))
def test_every_answer_is_one_that_the_document_tells_of(url, mode):
    failed = []
    tried = 0
    with requests.Session() as session:
        for result in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
            operation = result.ok()
            try:
                tried += _try(operation, mode, session)
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE, operation.label  # nothing can be wrong where nothing is asked
            except FailureGroup as group:
                failed.append(f"{operation.label}: " + "\n".join(map(str, group.exceptions)))
    assert not failed, "\n\n".join(failed)
    assert tried > 60


def _try(operation, mode, session):
    """Call one operation with what is drawn for it, and return how often."""
    tried = 0

    @DRAWN
    @given(case=operation.as_strategy(mode))
    def calls(case):
        nonlocal tried
        tried += 1
        if operation.path.endswith(("/events", "/progress")):
            case.headers["accept"] = "application/json"
        case.call_and_validate(session=session, checks=CHECKS, timeout=HANGS_S)

    calls()
    return tried
