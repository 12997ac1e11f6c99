"""Programs of PySpark: how they stand, and their calls."""

import time
from collections.abc import Sequence
from dataclasses import asdict

import onager
from onager.cli.output import print_json, print_table
from onager.client.program import ProgramCall, ProgramHandle

_CLOCK = "%Y-%m-%d %H:%M:%S"


def calls(scheduler: str, program_id: str, output: str) -> None:
    """Print the calls of a program in the order of their beginnings: with their lines, their errors and their jobs."""
    with onager.connect(scheduler) as client:
        found = in_order(client.program(program_id))
    if output == "json":
        print_json([asdict(call) for call in found])
        return
    has_tasks = len({call.task for call in found}) > 1
    print_table(
        ("TIME", *(("TASK",) if has_tasks else ()), "LINE", "CALL", "TARGET", "ATTEMPT", "STATE", "JOB"),
        [
            (
                time.strftime(_CLOCK, time.localtime(call.at_ms / 1000)),
                *((call.task,) if has_tasks else ()),
                *(call.line, call.kind, call.target, call.attempt),
                call.error or ("done" if call.done else "begun"),
                call.job_id,
            )
            for call in found
        ],
    )


def in_order(program: ProgramHandle) -> Sequence[ProgramCall]:
    """Return the calls of a program in the order of their beginnings."""
    return sorted(program.calls(), key=lambda call: (call.at_ms, call.task, call.number))


def print_standing(program: ProgramHandle) -> None:
    """Print a program's attempts and calls, where in the program it is, and its exit code."""
    info = program.info()
    if not info.attempt:
        print("attempts: none yet")
        return
    print(f"attempts: {info.attempt}")
    found = in_order(program)
    print(f"calls: {len(found):,} (onager calls {program.id})")
    if found:
        last = found[-1]
        print(f"last call: {last.line or 'not known where'}, {' to '.join(filter(None, (last.kind, last.target)))}")
    if info.ended:
        print(f"exit code: {info.exit_code}{f' ({info.why_ended})' if info.why_ended else ''}")
