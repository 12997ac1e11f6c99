"""``python -m tests.connect_doctests.child NAME REMOTE FILE``: the doctests of one module, a line of JSON for each.

The module's own ``_test`` says which names its examples know and how their output is compared. Only the runner is ours,
since Python's tells how many failed, but not which.
"""

import doctest
import importlib
import json
import os
import re
import sys
import time
import warnings
from pathlib import Path

import pyspark

from tests.connect_doctests import SQL, module_of

_ERROR = re.compile(r"^ *((?:\w+\.)*\w*(?:Error|Exception|Rendezvous): ?.*)$", re.MULTILINE)
_REASON_CHARS = 400


def reason(reported: str) -> str:
    """Return the errors in doctest's report of an example that failed, the last one first, or what it got instead."""
    if errors := _ERROR.findall(reported.partition("\nException raised:\n")[2]):
        return " after ".join(reversed(errors))[:_REASON_CHARS]
    got = reported.partition("\nGot:\n")[2] or reported
    return "got: " + " ".join(got.split())[:_REASON_CHARS]


def main(name: str, remote: str, file: Path) -> None:
    module = importlib.import_module(module_of(name))
    from pyspark.sql import SparkSession

    if name in SQL:
        # Their sessions, made for a master, are the server's.
        SparkSession.Builder.master = lambda builder, _: builder
        os.environ["SPARK_REMOTE"] = remote

    def testmod(tested=None, *, globs, optionflags):
        finder = doctest.DocTestFinder(exclude_empty=True)
        runner = doctest.DocTestRunner(verbose=False, optionflags=optionflags)
        tested = tested or module
        with file.open("a") as out:
            for test in finder.find(tested, tested.__name__, globs=globs):
                if not test.examples:
                    continue
                received: list[str] = []
                began_s = time.monotonic()
                result = runner.run(test, out=received.append)
                line = {
                    "test": test.name.removeprefix(f"{tested.__name__}."),
                    "examples": result.attempted,
                    "failed": result.failed,
                    "seconds": round(time.monotonic() - began_s, 2),
                    "reasons": [reason(text) for text in received if text.startswith("*****")],
                }
                out.write(json.dumps(line) + "\n")
                out.flush()
        return doctest.TestResults(0, 1)

    doctest.testmod = testmod
    module._test()


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_CONNECT_TESTING_REMOTE"] = sys.argv[2]
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # a client tries for long to end sessions of a server that is gone
