"""The daemon of Python workers that have the files of a program."""

import os
import sys

import pytest
from pyspark import SparkFiles

from onager.executor.spark import worker_daemon
from onager.executor.spark.worker_daemon import IdleEnd, find_files


def test_sparkfiles_are_where_modules_of_the_program_are_looked_for(monkeypatch):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", classmethod(lambda _: "/elsewhere"))
    find_files("abc")
    assert SparkFiles.get("data.txt") == "/elsewhere/data.txt"
    monkeypatch.setattr(sys, "path", ["/x/.connect/ab", "/x/.connect/abc/pack.zip", "/x/.connect/abc", *sys.path])
    assert SparkFiles.get("data.txt") == "/x/.connect/abc/data.txt"


def test_a_daemon_without_workers_ends_after_some_looks(monkeypatch):
    most = worker_daemon._IDLE_LOOKS
    children = iter([*[False] * (most - 1), True, *[False] * most])

    def waitpid(*_):
        if not next(children):
            raise ChildProcessError
        return 0, 0

    monkeypatch.setattr(os, "waitpid", waitpid)
    end = IdleEnd()
    for _ in range(2 * most - 1):
        end.look()
    with pytest.raises(SystemExit):
        end.look()
