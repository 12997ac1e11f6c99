"""What tells a call from another one: what it asks for, not what PySpark draws or where the program's text stands."""

import itertools
import json
import uuid

import pytest
from pyspark import cloudpickle as pickling
from pyspark.cloudpickle import cloudpickle
from pyspark.sql.connect import proto

from onager.programs import call_digest
from onager.programs.call_digest import Known, digest_of, knowing_functions, note_drawn


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(call_digest, "KNOWN", Known())


def plan(*, plan_id=1, column="x", function=">", value=1, seed=None, line=7, name="t", of=None):
    """Return a filter of a sample of a table."""
    request = proto.ExecutePlanRequest(session_id="s", operation_id=f"operation {plan_id}", tags=[f"{plan_id}"])
    relation = request.plan.root
    relation.common.plan_id = plan_id + 1
    relation.common.origin.python_origin.call_site = f"/tmp/{line}/app.py:{line}"
    called = relation.filter.condition.unresolved_function
    called.function_name = function
    attribute = called.arguments.add().unresolved_attribute
    attribute.unparsed_identifier, attribute.plan_id = column, plan_id if of is None else of
    called.arguments.add().literal.long = value
    read = relation.filter.input
    if seed is not None:
        read.common.plan_id = plan_id
        read.sample.seed, read.sample.upper_bound = seed, 0.5
        read = read.sample.input
    read.common.plan_id = plan_id
    read.read.named_table.unparsed_identifier = name
    read.read.named_table.options["a"] = "b"
    read.read.named_table.options["c"] = "d"
    return request


def digest(request, method="ExecutePlan"):
    return digest_of(method, request)


def test_ids_call_sites_and_seeds_are_left_out():
    assert digest(plan()) == digest(plan(plan_id=1 << 50, line=99))
    assert digest(plan(seed=1)) == digest(plan(seed=2, plan_id=7))
    assert digest(plan(function="rand", value=1)) == digest(plan(function="rand", value=2))
    assert len(digest(plan())) == 32


@pytest.mark.parametrize(
    "other",
    [{"column": "y"}, {"function": "<"}, {"value": 2}, {"name": "u"}, {"seed": 1}, {"of": 2}],
    ids=lambda other: next(iter(other)),
)
def test_what_is_asked_for_counts(other):
    assert digest(plan()) != digest(plan(**other))


def test_two_plans_run_into_one_another_nowhere():
    texts = ["", "a", "ab", "1a", "a(", "(a", "\0", "a\0"]
    found = {}
    for first, second in itertools.product(texts, texts):
        request = proto.ConfigRequest()
        request.operation.get.keys.extend([first, second])
        assert found.setdefault(digest(request, "Config"), (first, second)) == (first, second)


def test_a_name_that_was_drawn_does_not_count_and_another_one_does():
    def request(name, other):
        made = proto.ExecutePlanRequest()
        made.plan.command.sql_command.input.sql.query = f"SELECT * FROM view_{name} JOIN view_{other}"
        return made

    one, two, three = (uuid.UUID(int=number << 70) for number in (1, 2, 3))
    assert digest(request(one.hex, two.hex)) != digest(request(two.hex, three.hex))
    for each in (one, two, three):
        note_drawn(str(each))
    assert digest(request(one.hex, two.hex)) == digest(request(two.hex, three.hex))
    assert digest(request(one.hex, two.hex)) != digest(request(one.hex, one.hex))
    assert digest(request(str(one), str(two))) == digest(request(str(three), str(two)))


def test_variables_of_lambdas_count_by_their_places():
    def request(*names):
        made = proto.ExecutePlanRequest()
        for name in names:
            variable = made.plan.root.project.expressions.add().unresolved_named_lambda_variable
            variable.name_parts.append(name)
        return made

    assert digest(request("x_1", "x_1")) == digest(request("x_5", "x_5"))
    assert digest(request("x_1", "x_1")) != digest(request("x_5", "x_6"))
    assert digest(request("x_1")) != digest(request("y_1"))


def test_a_call_that_says_all_by_its_kind_has_none():
    assert digest_of("ReleaseSession", proto.ReleaseSessionRequest(session_id="s")) == ""
    interrupts = [proto.InterruptRequest(session_id="s", operation_id=str(number)) for number in range(2)]
    assert digest_of("Interrupt", interrupts[0]) == digest_of("Interrupt", interrupts[1])


def test_where_a_script_of_sql_is_counts_but_for_labels_that_were_drawn_and_the_text_that_is_parsed():
    def request(label="", value=1, ask="", text="SELECT n"):
        made = proto.ExecutePlanRequest()
        made.plan.command.sql_command.input.sql.query = text
        frames = [{"kind": "script", "blocks": [{"label": label, "variables": [["n", value]]}]}]
        said = json.dumps({"ask": ask, "frames": frames}).encode()
        made.user_context.extensions.add(type_url="type.googleapis.com/onager.ScriptStatement", value=said)
        return made

    one, two = (str(uuid.UUID(int=number << 70)) for number in (1, 2))
    assert digest(request(one)) == digest(request(two))
    assert digest(request("own")) != digest(request("another"))
    assert digest(request(value=1)) != digest(request(value=2))
    assert digest(request(text="SELECT 1")) != digest(request())
    assert digest(request(ask="parse", text="BEGIN END")) == digest(request(ask="parse", text="BEGIN SELECT 1; END"))


TEXT = """
class Factor{base}:
    def __init__(self, n):
        self.n = n
    def times(self, n):
        return self.n * n{change}
SCALE = {scale}
def scaled(n):
    def inner(m):
        return Factor(3).times(m) + SCALE
    return inner(n)
"""


def function_of(text, file="app.py"):
    names = {"__name__": "__main__", "__file__": file}
    exec(compile(text, file, "exec"), names)
    return names["scaled"]


def digest_of_function(function):
    request = proto.ExecutePlanRequest()
    called = request.plan.root.project.expressions.add().common_inline_user_defined_function
    called.function_name = "scaled"
    called.python_udf.command = knowing_functions(cloudpickle)((function, "long"))
    return digest(request)


def text(scale=2, change="", base=""):
    return TEXT.format(scale=scale, change=change, base=base)


def test_a_function_that_has_moved_is_the_same_one():
    once = digest_of_function(function_of(text()))
    assert digest_of_function(function_of(text())) == once
    assert digest_of_function(function_of("\n\n# more lines\n" + text())) == once
    assert digest_of_function(function_of(text(), "/somewhere/else/mended.py")) == once


@pytest.mark.parametrize(
    "other", [{"scale": 3}, {"change": " + 1"}, {"base": "(dict)"}], ids=lambda other: next(iter(other))
)
def test_a_function_that_does_something_else_is_another_one(other):
    assert digest_of_function(function_of(text())) != digest_of_function(function_of(text(**other)))


def test_what_spark_gets_is_pickled_as_ever():
    function = function_of(text())
    assert knowing_functions(cloudpickle)((function, "long")) == pickling.dumps((function, "long"))


def test_a_function_that_cannot_be_pickled_twice_is_known_by_its_pickle():
    class Once:
        def __reduce__(self):
            if self.is_done:
                raise ValueError
            self.is_done = True
            return int, (1,)

        is_done = False

    assert knowing_functions(cloudpickle)(Once())


def test_what_is_known_has_a_limit(monkeypatch):
    monkeypatch.setattr(call_digest, "_KEPT", 3)
    for number in range(5):
        note_drawn(uuid.UUID(int=number).hex)
    assert len(call_digest.KNOWN.drawn) == 3
