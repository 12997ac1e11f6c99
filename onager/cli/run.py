"""``onager run --local``: a program in a process of this machine, which goes on where it was killed.

It is a file of PySpark, or a script of SQL (BEGIN … END), for which `onager.programs.scripting` is the program.
"""

import getpass
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import onager
from onager.cli.exits import ExitCode, fail
from onager.client import OnagerClient
from onager.client.connection import parse_addresses
from onager.clock import SystemClock
from onager.ids import new_job_id
from onager.program_errors import AttemptSupersededError
from onager.programs.scripting.arguments import arguments_of, check_size
from onager.protocol.security import ClientSecurity

REFUSED: Final = 70
"""The exit code of a process that cannot go on; the program has not ended."""
_OF_SCRIPTS: Final = Path(onager.__file__).parent / "programs" / "scripting" / "__main__.py"
"""The program that runs a script of SQL."""


def run(scheduler: str, path: Path, arguments: Sequence[str], program_id: str) -> None:
    """Run the program until it ends by itself, and end this process with its exit code."""
    if not path.is_file():
        fail(f"{path} is no file: name the program, a file of Python or a script of SQL", ExitCode.USAGE)
    if _is_script(path):
        _check_script(path, arguments)
    program_id = program_id or new_job_id(SystemClock())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with onager.connect(scheduler) as client:
        sys.exit(_run(client, parse_addresses(scheduler), path, arguments, program_id))


def _is_script(path: Path) -> bool:
    return path.suffix.lower() == ".sql"


def _check_script(path: Path, arguments: Sequence[str]) -> None:
    """End this process if the script cannot be one, before there is a program that has ended with that."""
    try:
        check_size(path.read_text(encoding="utf-8"))
        arguments_of(arguments)
    except UnicodeDecodeError as error:
        fail(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})", ExitCode.USAGE)
    except ValueError as error:
        fail(f"{path}: {error}", ExitCode.USAGE)


def _run(client: OnagerClient, addresses: Sequence[str], path: Path, arguments: Sequence[str], program_id: str) -> int:
    user = os.environ.get("SPARK_USER") or getpass.getuser()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    while True:
        secret = secrets.token_hex(16)
        begun = client.begin_program(program_id, secret, user, digest, arguments)
        if begun.ended:
            why = f": {begun.why_ended}" if begun.why_ended else ""
            _say(f"program {program_id} has ended with {begun.exit_code}{why}; a new program needs another --id")
            return begun.exit_code
        if begun.attempt == 1:
            _say(f"program {program_id}: if this process dies, `onager run --local --id {program_id} {path} …` goes on")
        else:
            _say(f"attempt {begun.attempt} goes on behind {begun.calls:,} recorded calls")
        terms = {
            "program_id": program_id,
            "attempt": begun.attempt,
            "secret": secret,
            "seed": begun.seed,
            "user": user,
            "addresses": addresses,
            "files": _files(),
        }
        code = _process(terms, path, arguments)
        if code in (ExitCode.DETACHED, REFUSED):
            _say(f"program {program_id} has not ended: `onager run --local --id {program_id} {path} …` goes on")
            return code
        if code >= 0:
            try:
                client.end_program(program_id, begun.attempt, secret, code)
            except AttemptSupersededError as error:
                _say(str(error))
                return ExitCode.JOB_FAILED
            return code
        _say(f"the process of the program was killed by {signal.Signals(-code).name}")


def _process(terms: dict[str, object], path: Path, arguments: Sequence[str]) -> int:
    """Run an attempt; return its exit code, or a signal's number with a minus."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as given:
        program = [str(_OF_SCRIPTS), str(path)] if _is_script(path) else [str(path)]
        command = [sys.executable, "-m", "onager.programs", str(reader), *program, *arguments]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        # A signal of the terminal must not reach it: what it does then would be recorded as what the program does.
        process = subprocess.Popen(  # noqa: S603 - the user's own program
            command, pass_fds=[reader], env=environment, start_new_session=True
        )
        os.close(reader)
        with suppress(BrokenPipeError):
            json.dump(terms, given)
            given.flush()
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()
        return ExitCode.DETACHED


def _files() -> dict[str, str]:
    """Return the files with what is shown to the schedulers, and by what these are known."""
    security = ClientSecurity.from_environment()
    files = {name: getattr(security, name) for name in ("tls_ca", "tls_cert", "tls_key", "auth_token_file")}
    return {name: str(path.resolve()) for name, path in files.items() if path is not None}


def _say(text: str) -> None:
    print(f"onager: {text}", file=sys.stderr, flush=True)
