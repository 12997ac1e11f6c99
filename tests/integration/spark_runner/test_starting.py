"""The reasons why Spark's JVM does not start are distinguished; scripts take the place of Java."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
START = """
import json
import os
import sys
from onager.executor.spark.session import start_session
for line in sys.stdin:
    if os.fork():
        os.wait()
        continue
    os.environ.clear()
    os.environ.update(json.loads(line))
    try:
        start_session(1, {}, "/tmp")
    except Exception as error:
        print(json.dumps(f"{type(error).__name__} {error}"), flush=True)
    os._exit(0)
"""
"""Starts Spark in a fork for each environment that it reads, and writes what is reported."""
ONLY_THE_SECOND = 'case "$*" in *org.apache.spark.launcher.Main*) exec "$REAL_JAVA" "$@";; esac'
"""Spark's script runs Java to learn the command line, and then with that command line."""


@contextmanager
def starting(**imported_with: str):
    """Give a function that starts Spark with a Java and variables, in a process that has its imports done."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    command = [sys.executable, "-c", START]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **imported_with}, **pipes) as process:

        def start(java_home: Path, **variables: str) -> str:
            real = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
            given = {**os.environ, **imported_with, "JAVA_HOME": str(java_home), "REAL_JAVA": str(real), **variables}
            process.stdin.write(json.dumps(given) + "\n")
            return json.loads(process.stdout.readline())

        yield start
        process.stdin.close()


@pytest.fixture(scope="module")
def started():
    with starting() as start:
        yield start


@pytest.fixture
def java(tmp_path):
    """Return the home of a Java that is a script."""

    def make(script: str) -> Path:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / "java").chmod(0o755)
        return tmp_path

    return make


def test_no_java_is_named_with_where_it_was_looked_for(started, tmp_path):
    printed = started(tmp_path)
    assert printed.startswith(f"OnagerError Spark could not be started: there is no Java at JAVA_HOME ({tmp_path})")
    assert printed.endswith("install Java 17 or newer, and let JAVA_HOME name it")


def test_an_executor_that_a_client_of_spark_connect_starts_has_its_own_spark(tmp_path):
    variables = {"SPARK_REMOTE": "sc://localhost:1", "SPARK_CONNECT_MODE_ENABLED": "1", "SPARK_API_MODE": "connect"}
    with starting(**variables) as start:
        assert "there is no Java" in start(tmp_path)


def test_an_old_java_is_named(started, java):
    words = "java.lang.UnsupportedClassVersionError: Main has been compiled by a more recent version (class file 61.0)"
    printed = started(java(f'echo "Error: {words}" >&2; exit 1'))
    assert "is too old for it; install Java 17 or newer" in printed


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV"])
def test_a_signal_is_named_and_starting_again_may_help(started, java, name):
    printed = started(java(f"{ONLY_THE_SECOND}\nkill -{name} $$; sleep 5"))
    assert printed.startswith(f"WorkerDiedError Spark's JVM was killed by SIG{name} while it started")
    assert ("memory" in printed) == (name == "KILL")


def test_a_signal_to_the_jvm_that_comes_before_is_reported_too(started, java):
    printed = started(java("echo 'NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g' >&2; kill -KILL $$; sleep 5"))
    assert printed.startswith("WorkerDiedError Spark's JVM was killed while it started, without any output")


def test_what_else_ends_it_is_reported_in_its_own_words(started, java):
    variables = dict.fromkeys(("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"), "-Xss512k")
    fake = java(f"{ONLY_THE_SECOND}\necho 'Could not reserve enough space for object heap' >&2; exit 3")
    printed = started(fake, **variables)
    assert printed.endswith(
        "exit code 3 and wrote:\nCould not reserve enough space for object heap"
    )  # and no "Picked up"
    assert "Java" not in printed
