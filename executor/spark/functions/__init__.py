"""The Python functions of jobs; each call has its own process, which ends when the function returns."""

from onager.executor.spark.functions.calls import FunctionCalls, timeout_of
from onager.executor.spark.functions.processes import FunctionProcesses
