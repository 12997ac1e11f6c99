"""The commands of ``onager state``: their output, and their questions."""

import contextlib
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from onager.cli.exits import ExitCode, fail
from onager.cli.output import print_json, print_table
from onager.errors import InvalidRequestError
from onager.protocol import onager_pb2 as pb
from onager.protocol.plain import plain

if TYPE_CHECKING:
    from onager.client.state import ClusterState
    from onager.state_admin.backup_file import BackupFile
    from onager.state_admin.restoring import Target

_VALUE_WIDTH = 100
_LIVING_SHOWN = 5


def source(scheduler: str, backend: str | None) -> "AbstractContextManager[ClusterState]":
    """Return the store at *backend*, opened here, or without it the schedulers' store."""
    if backend is not None:
        from onager.cli.direct_state import DirectState

        return DirectState(backend)
    return _through(scheduler)


@contextlib.contextmanager
def _through(scheduler: str) -> "Iterator[ClusterState]":
    import onager

    with onager.connect(scheduler) as client:
        yield client.state


def ls(state: "ClusterState", prefix: str, limit: int, output: str) -> None:
    """Print keys."""
    answer = state.keys(prefix, limit)
    if output == "json":
        print_json([plain(entry) for entry in answer.entries])
        return
    rows = [(e.key, e.mod_revision, e.size_bytes) for e in answer.entries]
    print_table(("KEY", "REVISION", "BYTES"), rows, cell_width=None)
    if answer.more:
        print("… and more: give a longer prefix, or a higher --limit")


def get(state: "ClusterState", key: str, output: str) -> None:
    """Print one record."""
    answer = state.value(key)
    value = json.loads(answer.json)
    print_json({"key": answer.key, "mod_revision": answer.mod_revision, "value": value} if output == "json" else value)


def watch(state: "ClusterState", prefix: str, output: str) -> None:
    """Print each change as a line, until interrupted."""
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(state.changes(prefix)) as changes:
        for change in changes:
            if change.kind == "watching":
                print(f"watching from revision {change.mod_revision}; ^C ends it", file=sys.stderr, flush=True)
            else:
                print(_change_as_json(change) if output == "json" else _change_as_text(change), flush=True)


def _change_as_json(change: pb.StateChange) -> str:
    shown: dict[str, object] = {"kind": change.kind, "key": change.key, "mod_revision": change.mod_revision}
    if change.json:
        shown |= {"size_bytes": change.size_bytes, "value": json.loads(change.json)}
    return json.dumps(shown, ensure_ascii=False)


def _change_as_text(change: pb.StateChange) -> str:
    if change.kind == "lost":
        value = "events were lost; the current records follow as listed"
    else:
        value = change.json if len(change.json) <= _VALUE_WIDTH else change.json[: _VALUE_WIDTH - 1] + "…"
    return f"{change.mod_revision:>8}  {change.kind:<6}  {change.key}  {value}".rstrip().replace("\n", "\\n")


def rm(state: "ClusterState", path: str, *, is_agreed: bool, is_forced: bool, is_dry_run: bool, output: str) -> None:
    """Remove a record, or every record below a prefix, after confirmation."""
    found = state.remove(path, is_dry_run=True)
    if output != "json":
        what = "would remove" if is_dry_run else "to remove"
        print(f"{what}: {_count(found.keys, 'record')}")
        for key in found.sample:
            print(f"  {key}")
        if found.keys > len(found.sample):
            print(f"  … and {found.keys - len(found.sample):,} more")
        for danger in found.dangers:
            print(f"danger: {danger}")
    if not is_dry_run:
        if found.dangers and not is_forced:
            fail(f"{path} is in use: {'; '.join(found.dangers)}. Use --force to remove it anyway", ExitCode.USAGE)
        if not is_agreed:
            _ask(f"remove {_count(found.keys, 'record')}?")
        found = state.remove(path, is_dry_run=False, is_forced=is_forced)
    if output == "json":
        print_json(plain(found))
    elif found.removed:
        print(f"removed {_count(found.keys, 'record')}")


def check(state: "ClusterState", *, is_strict: bool, output: str) -> ExitCode:
    """Print the findings of a check; return 1 if there is an error, or, with *is_strict*, a warning."""
    findings, summary = _run_check(state)
    if output == "json":
        shown = plain(summary)
        print_json({**shown, "findings": [plain(finding) for finding in findings]})
    else:
        _print_check(findings, summary)
    return ExitCode.JOB_FAILED if summary.errors or (is_strict and summary.warnings) else ExitCode.DONE


def _run_check(state: "ClusterState") -> tuple[list[pb.StateFinding], pb.StateCheckSummary]:
    findings: list[pb.StateFinding] = []
    summary = pb.StateCheckSummary()
    for part in state.check():
        if part.begins:
            findings = []
        findings += part.findings
        if part.HasField("summary"):
            summary = part.summary
    return findings, summary


def _print_check(findings: list[pb.StateFinding], summary: pb.StateCheckSummary) -> None:
    for finding in findings:
        print(f"{finding.severity:<7}  {finding.kind:<12}  {finding.key}: {finding.message}".replace("\n", "\\n"))
    records = sum(summary.records.values())
    outcome = f"{_count(summary.errors, 'error')}, {_count(summary.warnings, 'warning')}"
    print(f"{_count(records, 'record')} at revision {summary.revision}: {outcome if findings else 'all is well'}")


def backup(state: "ClusterState", file: Path, *, is_overwriting: bool, output: str) -> None:
    """Write all records to a file, and print how many there are."""
    from onager.state_admin.backup_file import BackupWriter

    header = pb.StateBackupHeader()
    with BackupWriter(file, is_overwriting=is_overwriting) as writer:
        for message in state.backup():
            if message.HasField("header"):
                header = message.header
            writer.write(message)
        records = writer.finish()
    if output == "json":
        size = file.stat().st_size
        print_json({"file": str(file), "records": records, "revision": header.revision, "size_bytes": size})
        return
    print(f"{_count(records, 'record')} as of revision {header.revision} are in {file}")
    if header.left_out:
        left_out = ", ".join(f"{count} of {name}" for name, count in sorted(header.left_out.items()))
        print(f"left out, since they belong to running processes: {left_out}")


def restore(backend: str, file: Path, *, is_replacing: bool, is_agreed: bool, output: str) -> ExitCode:
    """Restore a backup into a store, check the store, and return 1 if the check finds an error."""
    from onager.cli.direct_state import DirectState
    from onager.state_admin.backup_file import BackupReader

    with BackupReader(file) as reader:
        found = reader.check()
        with DirectState(backend, may_be_new=True) as state:
            target = state.target()
            _check_target(state.is_shared, target, is_replacing=is_replacing)
            if output != "json":
                _announce(found, target)
            if target.counts and not is_agreed and target.mark is None:
                _ask(f"delete {_count(sum(target.counts.values()), 'record')} and restore {found.records:,}?")
            records = state.restore(reader, found, target)
            findings, summary = _run_check(state)
    if output == "json":
        print_json({"records": records, **plain(summary), "findings": [plain(finding) for finding in findings]})
    else:
        print(f"restored {_count(records, 'record')}; checking the store:")
        _print_check(findings, summary)
    return ExitCode.JOB_FAILED if summary.errors else ExitCode.DONE


def _check_target(is_shared: bool, target: "Target", *, is_replacing: bool) -> None:  # noqa: FBT001 - a fact
    if is_shared and target.living:
        living = ", ".join(target.living[:_LIVING_SHOWN])
        raise InvalidRequestError(
            f"the store is in use by {living}. Stop its schedulers, wait until their leases expire (some seconds), "
            "and try again; nothing was changed"
        )
    if target.counts and target.mark is None and not is_replacing:
        counts = ", ".join(f"{name} {count:,}" for name, count in target.counts.items())
        raise InvalidRequestError(
            f"the store is not empty ({counts}): give another one, or --replace to delete its records first; "
            "nothing was changed"
        )


def _announce(found: "BackupFile", target: "Target") -> None:
    print(f"backup of {found.taken} from {found.source}, revision {found.revision}: {_count(found.records, 'record')}")
    if target.mark is not None:
        print(f"an earlier restore of {target.mark.file} was not finished: starting again")
    elif target.counts:
        print(f"to be deleted: {_count(sum(target.counts.values()), 'record')}")


def _ask(question: str) -> None:
    """Return if the user at the terminal agrees; otherwise end the process without a change."""
    if not sys.stdin.isatty():
        fail(f"{question} There is no terminal to ask; use --yes", ExitCode.USAGE)
    try:
        answer = input(f"{question} [y/N] ")
    except (EOFError, KeyboardInterrupt):
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        fail("nothing was changed", ExitCode.JOB_FAILED)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
