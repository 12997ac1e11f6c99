"""Values that Spark binds to places in a query: ``:name`` and ``?``."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, SparkSession, functions

from onager.errors import PlanningError
from onager.executor.spark.jvm import Jvm, class_name, jvm_session
from onager.executor.spark.kernel.queries import JavaParser, Parsed
from onager.executor.spark.planning.statement_classes import DATA_MODIFYING
from onager.protocol import onager_pb2 as pb

Parser = Callable[[str], Parsed]
"""Parses a statement."""

_TYPE: Final = re.compile(r"[a-z_]{1,20}(\([0-9]{1,2}(,[0-9]{1,2})?\))?")
_PARSER: Final = "org.apache.spark.sql.catalyst.parser"


def parser_with(
    session: SparkSession, jvm: Jvm, parameters: Sequence[pb.SqlParameter] = (), *, statements: int = 1
) -> Parser:
    """Return the session's parser, which binds *parameters*; raises `PlanningError` for those that it cannot bind.

    Values without names need a script of one statement, since Spark counts places in each. Of several statements, none
    may have a place without a value: it would be found only when those before have had their effects.
    """
    parser = JavaParser(jvm, jvm_session(session), DATA_MODIFYING)
    if not parameters and statements == 1:
        return parser.parse
    names = [each.name for each in parameters]
    if any(names) and not all(names):
        raise PlanningError("some parameters have a name, and some have none: give all of them names, or none")
    if len(set(names)) < len(names) and any(names):
        raise PlanningError(f"a parameter is given twice: {', '.join(sorted(names))}")
    if names and not any(names) and statements > 1:
        raise PlanningError(
            f"values for ? are bound in a single statement, and the script has {statements}: use names, such as :day"
        )
    keys = names if any(names) else [f"{number + 1}. ?" for number in range(len(parameters))]
    literals = _literals(session, dict(zip(keys, parameters, strict=True))) if parameters else {}
    if all(names):
        to_map = jvm.java_class("org.apache.spark.api.python.PythonUtils").toScalaMap
        context = jvm.java_class(f"{_PARSER}.NamedParameterContext")(to_map(literals))
    else:
        context = jvm.java_class(f"{_PARSER}.PositionalParameterContext")(jvm.seq(literals.values()))
    return lambda text: parser.parse(text, context)


def _literals(session: SparkSession, parameters: Mapping[str, pb.SqlParameter]) -> dict[str, Any]:
    """Return each value as a literal, made by Spark's own cast of its text."""
    columns = [_column(key, each).alias(key) for key, each in parameters.items()]
    plan = session.range(1).select(*columns)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    found = {}
    for place, (key, each) in enumerate(parameters.items()):
        literal = plan.projectList().apply(place).child()
        if class_name(literal) != "Literal" or (literal.value() is None and each.type != "null"):
            raise PlanningError(f"{each.value!r}, given for {_shown(key)}, is no {each.type or 'string'}")
        found[key] = literal
    return found


def _column(key: str, parameter: pb.SqlParameter) -> Column:
    if parameter.type == "null":
        return functions.lit(None)
    wanted = parameter.type or "string"
    if _TYPE.fullmatch(wanted) is None:
        raise PlanningError(f"{_shown(key)} cannot be of the type {wanted!r}: give one such as bigint or decimal(10,2)")
    return functions.lit(parameter.value).try_cast(wanted)


def _shown(key: str) -> str:
    return f"the {key}" if key.endswith("?") else f":{key}"
