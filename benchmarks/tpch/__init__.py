"""TPC-H: the 22 queries on Onager and on plain Spark, side by side on one machine."""

from pathlib import Path

QUERIES_DIR = Path(__file__).parent / "queries"
QUERY_NUMBERS = tuple(range(1, 23))


def query_text(number: int) -> str:
    """Return the text of query *number* (1 to 22) with its validation parameters."""
    return (QUERIES_DIR / f"q{number}.sql").read_text(encoding="utf-8")
