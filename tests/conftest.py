"""Fixtures for all tests: etcd clusters for the whole run, their logs on failure, and lines in the summary."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator

import pytest
from hypothesis import settings

from tests.support.etcd import EtcdCluster
from tests.support.etcd.cluster import RUNNING
from tests.support.etcd.known_bugs import KNOWN_BUGS, about
from tests.support.spark.jvm_options import java_options

_REPORTED: list[tuple[str, str]] = []
# Every run draws the same, however slow the machine is; who looks for what is new sets `derandomize` to False.
settings.register_profile("gate", deadline=None, derandomize=True)
settings.load_profile("gate")

_JAVA_OPTIONS_ARE_GIVEN = "JDK_JAVA_OPTIONS" in os.environ


def pytest_configure() -> None:
    # What runs in the background of a shell ignores interrupts, and so would every process that a test starts. A
    # handler is not handed down as an ignored signal is.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A coroutine that nobody awaited is found by a later test: its warning says where it was made.
    sys.set_coroutine_origin_tracking_depth(3)


def pytest_collection_finish() -> None:
    # Tests and modules stay for the whole run. Looking through them for garbage took a fifth of its time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    # For each test: `scripts/test` makes Spark's classes while the first tests run.
    if not _JAVA_OPTIONS_ARE_GIVEN:
        os.environ["JDK_JAVA_OPTIONS"] = java_options()
    for cluster in RUNNING:
        cluster.mark_logs()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that adds a line to the run's summary, whether the test fails or not."""
    return lambda text: _REPORTED.append((request.node.nodeid, text))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if EtcdCluster.started:
        terminalreporter.section("etcd")
        terminalreporter.write_line(f"{EtcdCluster.started} clusters of {about(*KNOWN_BUGS)}")
    if _REPORTED:
        terminalreporter.section("what tests have to tell")
        for test, text in _REPORTED:
            terminalreporter.write_line(f"{test.partition('tests/')[2]}: {text}")


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdCluster]:
    """Return one member for everybody: leave it running, and keep to a namespace of your own."""
    with EtcdCluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def etcd3() -> Iterator[EtcdCluster]:
    """Return three members for everybody: leave them running, and keep to a namespace of your own."""
    with EtcdCluster(3) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(f"etcd of {cluster.size}", cluster.logs(since_mark=True)) for cluster in RUNNING]
    return report
