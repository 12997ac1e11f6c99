"""``onager job ID --timeline FILE`` and ``--spark-event-log FILE``."""

import sys
from io import BytesIO
from pathlib import Path

import onager
from onager.cli.exits import ExitCode, fail
from onager.client.amounts import size


def export(scheduler: str, job_id: str, kinds: dict[str, Path]) -> None:
    """Write exports of a job, by kind; ``-`` is standard output."""
    if list(kinds.values()).count(Path("-")) > 1:
        fail("only one file can go to standard output", ExitCode.USAGE)
    with onager.connect(scheduler) as client:
        job = client.job(job_id)
        for kind, path in kinds.items():
            if path == Path("-"):
                file = BytesIO()
                job.export(kind, file)
                sys.stdout.buffer.write(file.getvalue())
                sys.stdout.buffer.flush()
                continue
            try:
                written = job.export(kind, path)
            except OSError as error:
                fail(f"cannot write {path}: {error.strerror}", ExitCode.USAGE)
            print(f"{path}: {size(written)}", file=sys.stderr)


def timeline_kind(path: Path) -> str:
    """Return the form of the timeline that a file's name asks for; exits for another one."""
    kinds = {".svg": "timeline-svg", ".json": "timeline"}
    if path == Path("-"):
        return "timeline"
    if path.suffix.lower() not in kinds:
        fail(f"--timeline {path}: the name ends in .svg for a picture, in .json for the data", ExitCode.USAGE)
    return kinds[path.suffix.lower()]
