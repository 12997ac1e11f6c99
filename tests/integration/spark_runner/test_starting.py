"""The reasons why Spark's JVM does not start are told apart; scripts take the place of Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[3]
START = """
from onager.executor.spark.session import start_session
from onager.executor.work import WorkerDiedError
try:
    start_session(1, {}, "/tmp")
except Exception as error:
    print(type(error).__name__, error)
"""
ONLY_THE_SECOND = 'case "$*" in *org.apache.spark.launcher.Main*) exec "$REAL_JAVA" "$@";; esac'
"""Spark's script runs Java to learn the command line, and then with that command line."""


def started(java_home: Path, **variables: str) -> str:
    real = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    environment = {**os.environ, "JAVA_HOME": str(java_home), "REAL_JAVA": str(real), **variables}
    done = subprocess.run(
        [sys.executable, "-c", START],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_S,
    )
    return done.stdout.strip()


@pytest.fixture
def java(tmp_path):
    """Return the home of a Java that is a script."""

    def make(script: str) -> Path:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / "java").chmod(0o755)
        return tmp_path

    return make


def test_no_java_is_named_with_where_it_was_looked_for(tmp_path):
    told = started(tmp_path)
    assert told.startswith(f"OnagerError Spark could not be started: there is no Java at JAVA_HOME ({tmp_path})")
    assert told.endswith("install Java 17 or newer, and let JAVA_HOME name it")


def test_an_executor_that_a_client_of_spark_connect_starts_has_its_own_spark(tmp_path):
    told = started(tmp_path, SPARK_REMOTE="sc://localhost:1", SPARK_CONNECT_MODE_ENABLED="1", SPARK_API_MODE="connect")
    assert "there is no Java" in told


def test_an_old_java_is_named(java):
    words = "java.lang.UnsupportedClassVersionError: Main has been compiled by a more recent version (class file 61.0)"
    told = started(java(f'echo "Error: {words}" >&2; exit 1'))
    assert "is too old for it; install Java 17 or newer" in told


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV"])
def test_a_signal_is_named_and_starting_again_may_help(java, name):
    told = started(java(f"{ONLY_THE_SECOND}\nkill -{name} $$; sleep 5"))
    assert told.startswith(f"WorkerDiedError Spark's JVM was killed by SIG{name} while it started")
    assert ("memory" in told) == (name == "KILL")


def test_a_signal_to_the_jvm_that_comes_before_is_told_too(java):
    told = started(java("echo 'NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g' >&2; kill -KILL $$; sleep 5"))
    assert told.startswith("WorkerDiedError Spark's JVM was killed while it started, without any output")


def test_what_else_ends_it_is_told_in_its_own_words(java):
    variables = dict.fromkeys(("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"), "-Xss512k")
    fake = java(f"{ONLY_THE_SECOND}\necho 'Could not reserve enough space for object heap' >&2; exit 3")
    told = started(fake, **variables)
    assert told.endswith("exit code 3 and wrote:\nCould not reserve enough space for object heap")  # and no "Picked up"
    assert "Java" not in told
