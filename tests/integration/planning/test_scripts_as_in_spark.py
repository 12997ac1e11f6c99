"""Scripts give what plain Spark gives for their statements one after another: the same rows, or the same error."""

import json
import re

import pytest

from onager.executor.spark.failures import from_exception
from tests.integration.planning.script_corpus import Script, scripts
from tests.support.selection import some
from tests.support.spark.one_executor import OneExecutor, as_multiset, rows_of

PARTS = 4
NUMBERS = re.compile(r"#\d+L?")
"""Spark's numbers of columns in the text of a plan."""


def outcome_in_spark(executor: OneExecutor, script: Script) -> str:
    """Return names and rows, or the error's class, of the statements of *script* in a new session of plain Spark."""
    session = executor.spark.newSession()
    try:
        for statement in script:
            frame = session.sql(statement)
        return shown(frame.columns, rows_of(frame.toArrow()))
    except Exception as e:  # noqa: BLE001  (whatever it is, both have to raise it)
        return from_exception(executor.runner.kernel, e).error_class


def outcome_of_job(executor: OneExecutor, script: Script) -> str:
    """Return the same of the script as a job."""
    try:
        outcome = executor.plan_sql(";\n".join(script), conf={})
        columns = [field["name"] for field in json.loads(outcome.schema_json)["fields"]]
        return shown(columns, executor.run(outcome))
    except Exception as e:  # noqa: BLE001
        return from_exception(executor.runner.kernel, e).error_class


def shown(columns: list[str], rows: list[tuple[object, ...]]) -> str:
    return NUMBERS.sub("#", f"{columns}: {sorted(as_multiset(rows).items())}")


@pytest.mark.parametrize("part", range(PARTS))
def test_scripts_give_what_plain_spark_gives_statement_by_statement(executor, part):
    differences = []
    for script in some(scripts(), one_in=5)[part::PARTS]:
        expected, got = outcome_in_spark(executor, script), outcome_of_job(executor, script)
        if got != expected:
            differences.append(f"{script}\n  Spark: {expected}\n  here:  {got}")
    assert not differences, "\n".join(differences)


def test_there_are_at_least_two_hundred_scripts():
    distinct = {tuple(script) for script in scripts()}
    assert len(distinct) >= 200
