"""Lines of the log: of bounded size, made in bounded time, without secrets."""

import json
import subprocess
import sys

import pytest

from onager.logs import FIELD_CHARS, bounded, exception_text
from onager.protocol import onager_pb2 as pb

SECRET = "do-not-show-me"


def logged(**fields: object) -> dict[str, object]:
    return dict(bounded(None, "warning", {"event": "it_happened", **fields}))


@pytest.mark.parametrize(
    "value",
    [
        "x" * 30_000_000,
        {f"k{n}": "v" * 100_000 for n in range(1000)},
        ["v" * 100_000] * 1000,
        pb.SubmitJobRequest(client_id="c" * 20_000_000),
        10**100_000,
        [[[[["deep"]]]]],
        b"x" * 1_000_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_field_is_cut_and_says_how_much_of_it_was_there(value: object) -> None:
    assert len(json.dumps(logged(field=value))) < 33 * (FIELD_CHARS + 500)
    assert logged(field="x" * 30_000_000)["field"] == "x" * FIELD_CHARS + "… (cut: 30,000,000 characters)"


@pytest.mark.parametrize(
    "fields",
    [
        {"conf": {"fs.s3a.secret.key": SECRET}},
        {"why": f"spark.hadoop.fs.s3a.secret.key={SECRET}: no"},
        {"why": f"{{'password': '{SECRET}'}}"},
        {"backend": f"etcd://user:{SECRET}@host:2379"},
        {"token": SECRET},
        {"list": [f"access.key = {SECRET}"]},
    ],
)
def test_secrets_are_not_logged(fields: dict[str, object]) -> None:
    assert SECRET not in json.dumps(logged(**fields))


class Large(list[str]):
    """Counts how often it is written out."""

    written = 0

    def __repr__(self) -> str:
        self.written += 1
        return super().__repr__()


def raises(depth: int, request: object) -> None:
    if depth == 0:
        raise RuntimeError(f"something is wrong with {request}")
    raises(depth - 1, request)


def test_an_error_is_reported_by_its_last_places_in_the_code_and_without_what_variables_hold() -> None:
    large = Large(["x" * 100_000] * 100)
    try:
        raises(900, {"conf": large})
    except RuntimeError as error:
        text = str(logged(exc_info=error)["exception"])
    assert len(text) < 5000
    assert "in raises" in text
    assert "882 more" in text
    assert text.splitlines()[-1].startswith("RuntimeError: something is wrong with {'conf'")
    assert large.written == 1, "in the error's own text"


def test_causes_are_reported_first() -> None:
    try:
        try:
            {}["a"]
        except KeyError as error:
            raise ValueError("b") from error
    except ValueError as error:
        text = exception_text(error)
    assert text.index("KeyError: 'a'") < text.index("which led to") < text.index("ValueError: b")


@pytest.mark.parametrize("style", ["json", "console"])
def test_what_libraries_log_is_bounded_too_and_has_no_secrets(style: str) -> None:
    script = f"""
import logging
from onager.logs import configure_logging
configure_logging("info", {style!r})
def fails(depth):
    return fails(depth - 1) if depth else 1 / 0
try:
    fails(500)
except ZeroDivisionError:
    logging.getLogger("grpc").exception("password=%s %s", {SECRET!r}, "x" * 1_000_000, stack_info=True)
logging.getLogger("grpc").info("not of interest")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert SECRET not in done.stderr
    assert len(done.stderr) < 3 * FIELD_CHARS + 5000
    for words in ("grpc", "ZeroDivisionError: division by zero", "in fails", "more"):
        assert words in done.stderr
    assert "not of interest" not in done.stderr
    if style == "json":
        assert json.loads(done.stderr)["level"] == "error"


def test_what_py4j_raises_it_does_not_log_besides() -> None:
    script = """
import socket, threading
from py4j.java_gateway import GatewayClient, GatewayParameters
from onager.logs import configure_logging
configure_logging("info", "json")
jvm = socket.create_server(("127.0.0.1", 0))
def dies():
    while True:
        jvm.accept()[0].close()
threading.Thread(target=dies, daemon=True).start()
parameters = GatewayParameters(port=jvm.getsockname()[1])
print(GatewayClient(gateway_parameters=parameters).send_command("a command", retry=False))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "x\n", "it was notified of its error"
    assert done.stderr == ""


@pytest.mark.parametrize("style", ["json", "console"])
def test_both_styles_leave_out_what_variables_hold(style: str) -> None:
    script = f"""
import structlog
from onager.logs import configure_logging
configure_logging("info", {style!r})
def fails(request):
    raise RuntimeError("a defect")
try:
    fails({{"conf": {SECRET!r}}})
except RuntimeError:
    structlog.get_logger().exception("call_failed", call="SubmitJob")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert SECRET not in done.stderr
    assert "RuntimeError: a defect" in done.stderr
    assert "in fails" in done.stderr
