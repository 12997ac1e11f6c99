"""The Python functions of jobs, each called in a process of its own that ends when it has returned."""

from executor.spark.functions.calls import FunctionCalls
from executor.spark.functions.processes import FunctionProcesses

__all__ = ["FunctionCalls", "FunctionProcesses"]
