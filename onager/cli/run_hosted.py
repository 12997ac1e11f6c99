"""``onager run``: a program of PySpark that the cluster runs; this process shows what it prints."""

import sys
from pathlib import Path
from typing import Any, NoReturn

import onager
from onager.cli.exits import ExitCode, fail
from onager.cli.interrupts import wish
from onager.client.program import ProgramHandle
from onager.errors import JobEndedError


def run_hosted(scheduler: str, path: Path, *, is_detached: bool, **options: Any) -> None:
    """Submit the program; unless detached, show its output and end with its exit code."""
    with onager.connect(scheduler) as client:
        program = client.run(path, **options)
        if is_detached:
            print(program.id)
            return
        _say(f"program {program.id}: it goes on if this command ends; onager logs {program.id} shows its output")
        attach(program)


def attach(program: ProgramHandle) -> NoReturn:
    """Show what the program prints until it has ended, and end this process with its exit code."""
    while True:
        try:
            show(program)
            sys.exit(_exit_code(program))
        except KeyboardInterrupt:
            _interrupted(program)


def show(program: ProgramHandle, *, follow: bool = True) -> None:
    """Print what the program printed and prints."""
    for printed in program.output(follow=follow):
        if printed.left_out:
            _say(f"{printed.left_out:,} bytes of its output were not kept")
        stream = sys.stderr if printed.is_error else sys.stdout
        stream.buffer.write(printed.text)
        stream.flush()


def _exit_code(program: ProgramHandle) -> int:
    try:
        return program.wait()
    except JobEndedError as error:
        _say(str(error))
        return ExitCode.JOB_FAILED


def _interrupted(program: ProgramHandle) -> None:
    """Ask whether to go on; if not, kill or leave the program, and end this process."""
    answer = wish(f"program {program.id}", "see its output again")
    if answer == "c":
        program.cancel("interrupted by the user")
        fail(f"program {program.id} is cancelled", ExitCode.JOB_FAILED)
    if answer == "d":
        fail(
            f"program {program.id} continues; onager logs {program.id} shows its output, onager cancel {program.id} "
            "kills it",
            ExitCode.DETACHED,
        )


def _say(text: str) -> None:
    print(f"onager: {text}", file=sys.stderr, flush=True)
