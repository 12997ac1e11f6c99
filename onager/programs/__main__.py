"""The process of a program.

    python -m onager.programs FD APP.PY [ARGUMENT…]

The file descriptor FD gives the terms, as JSON (`Terms`).
"""

import builtins
import ctypes
import json
import os
import random
import signal
import sys
import traceback
import types
import uuid

from onager.programs.changes import change_pyspark
from onager.programs.output import Output, spark_text, take_over
from onager.programs.stub import Program, failed_call, say
from onager.programs.tasks import CURRENT, ROOT, Task, follow_tasks, uuid1, uuid4
from onager.programs.terms import Terms

_DIE_WITH_PARENT = 1
"""Linux's PR_SET_PDEATHSIG."""
_DUMPABLE = 4
"""Linux's PR_SET_DUMPABLE."""


def _seed_all(terms: Terms) -> None:
    """Have what the program draws by itself follow from its seed."""
    random.seed(f"{terms.seed}/program")
    uuid.uuid4, uuid.uuid1 = uuid4, uuid1
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(int(terms.seed[:8], 16))


def run(terms: Terms, path: str, arguments: list[str]) -> int:
    """Run the program of the file *path*; return its exit code."""
    Program.file = path = os.path.abspath(path)
    try:
        with open(path, "rb") as file:
            code = builtins.compile(file.read(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        say(f"{path} cannot be run: {error}")
        return 2
    Program.id, Program.attempt = terms.program_id, terms.attempt
    Program.recorded, Program.retries = terms.calls, terms.retries
    CURRENT.set(Task(ROOT, terms.seed))
    follow_tasks()
    if terms.output >= 0:
        Program.output = Output(terms.output, terms.shown)
        take_over(Program.output)
    change_pyspark(terms)
    _seed_all(terms)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(path)
    try:
        exec(code, module.__dict__)  # noqa: S102 - this is what it is for
    except SystemExit as end:
        if end.code:
            _ends()
            _report(end)
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        _ends()
        own = error.__traceback__.tb_next if error.__traceback__ is not None else None
        traceback.print_exception(type(error), error, own)
        _report(error)
        _sum_up(error, os.path.dirname(path))
        return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _ends() -> None:
    if Program.output is not None:
        Program.output.ends()


def _report(error: BaseException) -> None:
    """Say which call's error ends the program: a retry begins with that call."""
    if Program.output is not None and (failed := failed_call(error)) is not None:
        Program.output.failed(*failed)


def _sum_up(error: BaseException, folder: str) -> None:
    """Say where the program failed, and why, in one line where Spark's text goes on for pages; its job says so, too.

    *folder*: where the program's own code is.
    """
    from pyspark.errors import PySparkException

    at = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if name.startswith(folder + os.sep) and "-packages" + os.sep not in name:
            at = f"{os.path.basename(name)}:{line}: "
    try:
        message, is_long = spark_text(error)
    except Exception:  # the text of an error is the program's own code
        message, is_long = "", False
    why = f"{at}{type(error).__name__}{message and ': '}{message}"
    if is_long:
        say(why.partition("\n")[0])
    if Program.output is not None:
        is_spark = isinstance(error, PySparkException)
        condition, state = (error.getCondition(), error.getSqlState()) if is_spark else ("", "")
        Program.output.raised(condition or "", state or "", why)


def main() -> None:
    """Run the program that the command line names."""
    number, path, *arguments = sys.argv[1:]
    os.environ.pop("PYTHONHASHSEED", None)  # it was for this process
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a process has them that a shell starts
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)  # nobody would note the end of a program whose command is gone
        libc.prctl(_DUMPABLE, 0, 0, 0, 0)  # the attempt's secret is for no other process of this user
    with os.fdopen(int(number)) as given:
        given_terms = json.load(given)
    terms = Terms(**{**given_terms, "addresses": tuple(given_terms["addresses"])})
    sys.exit(run(terms, path, arguments))


if __name__ == "__main__":
    main()
