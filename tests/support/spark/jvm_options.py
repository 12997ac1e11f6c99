"""What the tests' JVMs are started with: they live for a minute or so, and starting is much of what they do."""

from pathlib import Path

CLASSES = Path(__file__).resolve().parents[3] / "var" / "spark-classes"
"""Where tests/support/spark/classes.py leaves Spark's classes as the JVM has them in memory."""
SILENT = "-Xlog:disable -Xlog:all=error:stderr"
"""Spark's scripts read what Java prints: no warning that the classes do not fit may be in it."""
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=512m "
    "-XX:ReservedCodeCacheSize=240m -XX:-UseCodeCacheFlushing -XX:InitialRAMPercentage=6"
)
"""For such a JVM, what the second compiler does costs more than it brings, by far; so do threads that look for garbage
while others work, looking again and again for the code and classes of queries that are over, and a small heap at first,
which is collected often."""


def java_options() -> str:
    made = next(CLASSES.glob("*.jsa"), None)
    return f"{QUICK} -XX:SharedArchiveFile={made} {SILENT}" if made and " " not in str(made) else QUICK
