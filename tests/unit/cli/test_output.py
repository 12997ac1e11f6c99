"""Values of results as text."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from onager.cli.output import json_text, print_table, unique_names
from onager.client.amounts import size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (0.1, "0.1"),
        (float("nan"), '"nan"'),
        (float("-inf"), '"-inf"'),
        (Decimal("12345678901234567890.1234567890"), "12345678901234567890.1234567890"),
        (Decimal("1E+3"), "1000"),
        ('a "b" ü\n', json.dumps('a "b" ü\n', ensure_ascii=False)),
        (date(2024, 2, 29), '"2024-02-29"'),
        (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), '"2024-02-29T01:02:03+00:00"'),
        (b"\x00\xff", '"AP8="'),
        ([1, None, {"k": Decimal("2.50")}], '[1, null, {"k": 2.50}]'),
    ],
    ids=repr,
)
def test_values_as_json(value, text):
    assert json_text(value) == text
    json.loads(text)


def test_repeated_names_get_a_number_that_is_free():
    assert unique_names(["a", "b", "a", "a_2", "a"]) == ["a", "b", "a_3", "a_2", "a_4"]


def test_tables_align_numbers_to_the_right_and_cut_long_texts(capsys):
    print_table(("n", "text"), [(1, "x"), (100, "y" * 100)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("  1  x")
    assert lines[3] == f"100  {'y' * 59}…"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**20, "5.0 MiB"), (2**60, "1024.0 PiB")],
)
def test_sizes_are_reported_in_units_for_people(count, text):
    assert size(count) == text
