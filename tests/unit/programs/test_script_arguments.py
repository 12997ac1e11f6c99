"""What comes with a script: whether a text is one, and its values."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from onager.client.spec import parameter_messages
from onager.programs.scripting.arguments import begins_script, value_of


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN SELECT 1; END",
        "\n begin\nEND",
        "-- BEGIN\nBEGIN END",
        "/* one /* within */ */ /**/ BEGIN END",
        "mine: BEGIN END",
        "`my ``own` : BEGIN END",
    ],
)
def test_a_script_begins_with_begin(text):
    assert begins_script(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "--",
        "-- BEGIN",
        "/* BEGIN",
        "/* /* */ BEGIN END",
        "SELECT begin FROM t",
        "BEGINNING",
        "SET a = 1; BEGIN END",
        "'BEGIN'",
        "/*+ hint */ BEGIN END",
    ],
)
def test_other_texts_are_none(text):
    assert not begins_script(text)


def test_values_of_the_client_come_back_as_they_were():
    values = {
        "flag": False,
        "whole": -7,
        "large": 10**20,
        "half": 0.5,
        "price": Decimal("1.50"),
        "day": date(2026, 11, 30),
        "at": datetime(2026, 11, 30, 12, tzinfo=UTC),
        "wall": datetime(2026, 11, 30, 12),  # noqa: DTZ001 - one without a zone
        "name": "it's",
        "nothing": None,
    }
    assert {each.name: value_of(each.name, each.type, each.value) for each in parameter_messages(values)} == values


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("int", "seven", "'seven', given for :n, is no int"),
        ("date", "tomorrow", "is no date"),
        ("decimal(3,1)", "x", r"is no decimal\(3,1\)"),
        ("array<int>", "1", "cannot be of the type 'array<int>': give one of string, boolean"),
    ],
)
def test_what_is_no_value_is_named(kind, text, says):
    with pytest.raises(ValueError, match=says):
        value_of("n", kind, text)
