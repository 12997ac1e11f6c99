"""The way between Python and the JVM."""

import time
from concurrent.futures import ThreadPoolExecutor

HELD_BACK_S = 0.04
"""For so long the end of an answer waits for Python's side to acknowledge its beginning, unless it is sent at once."""


def test_long_answers_come_at_once(spark):
    builder = spark._jvm.java.lang.StringBuilder

    def seconds() -> float:
        began_s = time.perf_counter()
        assert builder("x" * 20_000).toString() == "x" * 20_000
        return time.perf_counter() - began_s

    with ThreadPoolExecutor(1) as own_connection:
        taken = [own_connection.submit(seconds).result() for _ in range(20)]

    assert min(taken) < HELD_BACK_S * 0.75
