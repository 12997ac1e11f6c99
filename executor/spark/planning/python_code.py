"""Checks that Python functions in a plan refer to values only, not to objects of the driver."""

from onager.errors import UnsupportedPlanError
from onager.executor.spark.planning.outline import PlanNode


def check_python_functions(node: PlanNode) -> None:
    """Raise `UnsupportedPlanError` if a Python function of *node* holds a broadcast variable or an accumulator.

    A broadcast variable is pickled as a number, which would silently mean another value in another executor; additions
    to an accumulator there would be lost.
    """
    for function in node.functions:
        name = function["name"]
        if function["broadcasts"]:
            raise UnsupportedPlanError(
                f"a broadcast variable in the Python function {name}",
                "refer to the value itself instead of sparkContext.broadcast(value) (Spark also broadcasts a function "
                "larger than spark.broadcast.UDFCompressionThreshold: let it load its data from a file)",
            )
        if function["has_accumulator"]:
            raise UnsupportedPlanError(
                f"an accumulator in the Python function {name}",
                "what tasks add to it cannot be read from the job; return it as a column and aggregate that",
            )
