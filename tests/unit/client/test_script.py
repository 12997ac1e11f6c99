"""Scripts as a client makes them: steps in an order that works, or an error before anything is sent; values of SQL."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from onager.client.script import Script
from onager.client.spec import parameter_messages
from onager.errors import InvalidRequestError


def new(sent=None, name="", **options):
    given = {"views": {}, "conf": {}} | options
    return Script(lambda spec, job_id: (sent if sent is not None else []).append((spec, job_id)), name, given)


def test_a_step_comes_after_those_that_it_waits_for():
    sent = []
    script = new(sent, name="nightly", conf={"spark.x": True}, labels={"team": "a"}, deadline="2h")
    last = script.sql("SELECT 3", name="last")
    first = script.sql("SELECT 1", name="first")
    second = script.sql("SELECT :a", name="second", after=[first], params={"a": 1}, output="/out", mode="append")
    last.after(second, first)
    script.submit("p")
    ((spec, job_id),) = sent
    assert (spec.name, dict(spec.conf), dict(spec.labels), job_id) == (
        "nightly",
        {"spark.x": "true", "onager.deadline": "2h"},
        {"team": "a"},
        "p",
    )
    assert [(step.name, list(step.after)) for step in spec.script.steps] == [
        ("first", []),
        ("second", [1]),
        ("last", [1, 2]),
    ]
    step = spec.script.steps[1]
    assert (step.sink.path, step.sink.mode, step.sql.parameters[0].name) == ("/out", "append", "a")


def load(spark, rows):
    return spark.range(rows)


def test_a_function_is_a_step():
    sent = []
    script = new(sent)
    script.function(load, args={"rows": 3})
    script.submit()
    (step,) = sent[0][0].script.steps
    assert (step.name, step.python.function, step.python.arguments_json) == ("step 1", "load", '{"rows": 3}')


def test_steps_that_wait_for_each_other_are_named_and_nothing_is_sent():
    sent = []
    script = new(sent)
    a, b, c = (script.sql("SELECT 1", name=name) for name in "abc")
    a.after(b)
    b.after(c)
    c.after(b)
    with pytest.raises(InvalidRequestError, match="b waits for c waits for b"):
        script.submit()
    assert sent == []


def test_what_makes_no_script_is_refused():
    with pytest.raises(InvalidRequestError, match="no step"):
        new().submit()
    script = new()
    step = script.sql("SELECT 1", name="a")
    with pytest.raises(InvalidRequestError, match="'a' already"):
        script.sql("SELECT 1", name="a")
    with pytest.raises(InvalidRequestError, match="another script"):
        new().sql("SELECT 1", after=[step])


def test_values_get_the_type_that_they_have():
    values = {
        "none": None,
        "yes": True,
        "whole": 3,
        "huge": 2**70,
        "real": 0.1,
        "exact": Decimal("-12.340"),
        "tiny": Decimal("1E-3"),
        "large": Decimal("1E+3"),
        "text": "it's",
        "day": date(2026, 3, 1),
        "local": datetime(2026, 3, 1, 12, 30),  # noqa: DTZ001 - without a zone it is a timestamp_ntz
        "moment": datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
    }
    found = {message.name: (message.type, message.value) for message in parameter_messages(values)}
    assert found == {
        "none": ("null", ""),
        "yes": ("boolean", "true"),
        "whole": ("bigint", "3"),
        "huge": ("decimal(38,0)", str(2**70)),
        "real": ("double", "0.1"),
        "exact": ("decimal(5,3)", "-12.340"),
        "tiny": ("decimal(3,3)", "0.001"),
        "large": ("decimal(4,0)", "1000"),
        "text": ("string", "it's"),
        "day": ("date", "2026-03-01"),
        "local": ("timestamp_ntz", "2026-03-01T12:30:00"),
        "moment": ("timestamp", "2026-03-01T12:30:00+00:00"),
    }
    assert [(message.name, message.value) for message in parameter_messages([1, "a"])] == [("", "1"), ("", "a")]
    assert parameter_messages(None) == []


@pytest.mark.parametrize(
    ("params", "why"),
    [({"a": [1]}, "a is list"), ("abc", "by name, or as a list"), ([Decimal("NaN")], "no decimal"),
     ([Decimal("1E+40")], "41 digits")],
)  # fmt: skip
def test_values_that_spark_has_no_literal_for_are_refused(params, why):
    with pytest.raises(InvalidRequestError, match=why):
        parameter_messages(params)
