"""The Python functions of jobs, each called in a process of its own that ends when it has returned."""

from onager.executor.spark.functions.calls import FunctionCalls
from onager.executor.spark.functions.processes import FunctionProcesses

__all__ = ["FunctionCalls", "FunctionProcesses"]
