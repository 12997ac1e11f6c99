"""What Python functions in a plan may refer to: values, but no handle to another process."""

from typing import Any

from onager.errors import UnsupportedPlanError
from onager.executor.spark.kernel import PlanTools


def check_python_functions(tools: PlanTools, node: Any) -> None:
    """Raise `UnsupportedPlanError` if a Python function of *node* holds a broadcast variable or an accumulator.

    A broadcast variable is a number that each process resolves by itself, so in another executor it would name another
    value, without any sign; what is added to an accumulator there, nobody would ever see.
    """
    for name, broadcasts, has_accumulator in tools.python_functions(node):
        if broadcasts:
            raise UnsupportedPlanError(
                f"a broadcast variable in the Python function {name}",
                "refer to the value itself instead of sparkContext.broadcast(value) (a function larger than "
                "spark.broadcast.UDFCompressionThreshold counts as one, too: let it load its data from a file)",
            )
        if has_accumulator:
            raise UnsupportedPlanError(
                f"an accumulator in the Python function {name}",
                "what tasks add to it cannot be read from the job; return it as a column and aggregate that",
            )
