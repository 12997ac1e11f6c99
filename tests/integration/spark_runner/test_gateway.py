"""The way between Python and the JVM."""

import time
from concurrent.futures import ThreadPoolExecutor

HELD_BACK_S = 0.04
"""For so long the end of an answer waits for Python's side to acknowledge its beginning, unless it is sent at once."""


def test_long_answers_come_at_once(spark):
    builder = spark._jvm.java.lang.StringBuilder

    def seconds(length: int) -> float:
        began_s = time.perf_counter()
        assert builder("x" * length).toString() == "x" * length
        return time.perf_counter() - began_s

    with ThreadPoolExecutor(1) as own_connection:
        short, long = ([own_connection.submit(seconds, n).result() for _ in range(20)] for n in (20, 20_000))

    assert min(long) < min(short) + HELD_BACK_S * 0.75
