"""What the tasks of a job logged: a heading for each attempt, and its lines."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

import onager
from onager.cli.exits import ExitCode, fail
from onager.cli.run_hosted import show
from onager.client.logs import AttemptLog

KEPT_BYTES: Final = 256 * 1024
"""What executors keep of each attempt."""
_TAIL: Final = re.compile(r"([0-9]{1,9})([kKmM]?)(i?[bB])?")
_UNITS: Final = {"": 1, "k": 1024, "m": 1024 * 1024}

Cut = Callable[[str], str]


def logs(scheduler: str, job_id: str, tail: str, output: str, *, follow: bool, **selected: int | None) -> None:
    """Print a job's logs as they come: of *selected* stage_id, partition and attempt. Notes go to standard error.

    Of a program, unless something is selected, that is what it printed.
    """
    tail_bytes, cut = amount(tail)
    shown: tuple[int, int, int, int] | None = None
    seen: set[tuple[int, int, int, int]] = set()
    with onager.connect(scheduler) as client:
        is_whole = output != "json" and all(each is None for each in selected.values())
        if is_whole and client.job(job_id).progress().is_program:
            show(client.program(job_id), follow=follow)
            return
        for log in client.job(job_id).logs(**selected, tail_bytes=tail_bytes, follow=follow):
            if output == "json":
                print(json.dumps(asdict(log), ensure_ascii=False), flush=follow)
                continue
            if log.note:
                print(f"onager: {log.note}", file=sys.stderr, flush=True)
                continue
            key = (log.stage_id, log.stage_attempt, log.partition, log.attempt)
            if key != shown:
                print(("" if shown is None else "\n") + heading(log))
                shown = key
            text = log.text if key in seen else cut(log.text)
            seen.add(key)
            print(text, end="" if text.endswith("\n") else "\n", flush=follow)


def heading(log: AttemptLog) -> str:
    """Return the line above an attempt's lines."""
    again = f" (attempt {log.stage_attempt} of the stage)" if log.stage_attempt else ""
    kept = ", as kept with its failure" if log.is_kept else ", the last lines" if log.is_cut else ""
    return (
        f"==> stage {log.stage_id}{again}, task {log.partition}, attempt {log.attempt} on {log.executor_id}{kept} <=="
    )


def amount(text: str) -> tuple[int, Cut]:
    """Return how many bytes of each attempt to fetch, and what is shown of them: ``100`` lines, or ``64k`` bytes."""
    found = _TAIL.fullmatch(text)
    if found is None or int(found[1]) == 0:
        fail(
            f"--tail {text!r}: expected a number of lines, such as 100, or of bytes, such as 64k or 500B",
            ExitCode.USAGE,
        )
    number, unit = int(found[1]), found[2].lower()
    if unit or found[3]:
        return min(number * _UNITS[unit], KEPT_BYTES), lambda lines: lines
    return KEPT_BYTES, lambda lines: "".join(lines.splitlines(keepends=True)[-number:])
