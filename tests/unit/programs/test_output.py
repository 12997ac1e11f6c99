"""What programs print: each line is kept once, whatever attempt printed it."""

import asyncio
import os
import sys

import pytest

from onager import program_output
from onager.executor.programs.printed import Printed
from onager.program_output import LIVE, LOST, REFUSED, STDERR, STDOUT, Frame, OutputFolder, frames_of, segments, shown
from onager.programs import output
from onager.programs.tasks import Task


def said(task, number, text, stream=STDOUT):
    return Frame(stream, number, task, text.encode())


@pytest.fixture
def pipe():
    """A pipe, and what was written to it as frames."""
    reader, writer = os.pipe()

    def read():
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            frames, taken = frames_of(content := file.read())
        assert taken == len(content)
        return frames

    return writer, read


def test_a_line_is_one_frame_with_the_call_before_it(pipe, monkeypatch):
    writer, read = pipe
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    task = Task("0", "seed")

    def act():
        print("first")  # noqa: T201
        task.call()
        print("one", "two", 3)  # noqa: T201
        print("no end", end="", flush=True)  # noqa: T201
        print("wrong", file=sys.stderr)  # noqa: T201

    output.take_over(output.Output(writer, {}))
    assert (sys.stdout.fileno(), sys.stderr.fileno()) == (1, 2)
    task.run(act)
    assert [frame for frame in read() if frame.stream != LIVE] == [
        said("0", 0, "first\n"),
        said("0", 1, "one two 3\n"),
        said("0", 1, "no end"),
        said("0", 1, "wrong", STDERR),
        said("0", 1, "\n", STDERR),  # of errors, nothing waits for the end of a line
    ]


def test_what_an_earlier_attempt_printed_is_dropped_task_by_task(pipe):
    writer, read = pipe
    made = output.Output(writer, {"0": 2, "0.1": 1})
    root, other = Task("0", "seed"), Task("0.1", "seed")
    for _ in range(4):
        root.run(made.printed, STDOUT, f"root {root.calls}".encode())
        other.run(made.printed, STDOUT, f"other {other.calls}".encode())
        root.call()
        other.call()
    printed = [frame.text.decode() for frame in read() if frame.stream != LIVE]
    assert printed == ["other 1", "root 2", "other 2", "root 3", "other 3"]


def test_why_a_program_ends_is_shown_even_if_that_is_where_an_earlier_attempt_has_printed(pipe):
    writer, read = pipe
    made = output.Output(writer, {"0": 20})
    task = Task("0", "seed")
    task.run(made.printed, STDOUT, b"printed before")
    made.ends()
    task.run(made.printed, STDERR, b"Traceback")
    assert read() == [said("0", 0, "", LIVE), said("0", 0, "Traceback", STDERR)]


def test_long_texts_come_in_pieces_and_signals_in_frames_of_their_own(pipe):
    writer, read = pipe
    made = output.Output(writer, {})
    Task("0", "seed").run(made.printed, STDOUT, b"x" * 50_000)
    made.refused("because")
    made.lost()
    kinds = [(frame.stream, len(frame.text)) for frame in read()]
    assert kinds == [(LIVE, 0), (STDOUT, 50_000), (REFUSED, 7), (LOST, 0)]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_frames_that_are_cut_off_wait_for_the_rest(cut):
    content = b"".join(frame.encoded() for frame in (said("0", 1, "a line\n"), said("0.3.1", 70_000, "ü\n")))
    frames, taken = frames_of(content[:cut])
    assert b"".join(frame.encoded() for frame in frames) == content[:taken]
    assert frames_of(content)[1] == len(content)


def test_of_very_much_the_beginning_and_the_end_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(program_output, "SEGMENT_BYTES", 100)
    folder = OutputFolder(tmp_path / "output", 1)
    for number in range(200):
        folder.add(said("0", number, f"{number:03} {'x' * 40}\n"))
    found = segments(tmp_path / "output")
    kept = [frame.number for s in found for frame in frames_of((tmp_path / "output" / s.name).read_bytes())[0]]
    assert len(found) == 2 * program_output.KEPT
    assert kept == [*range(4), *range(196, 200)]
    assert shown(tmp_path / "output") == {"0": 199}


def test_what_a_child_process_prints_counts_from_where_the_last_attempt_ended(tmp_path):
    lines = []

    async def read():
        printed = Printed(OutputFolder(tmp_path / "output", 2), {"0": 5}, lines.append)
        pairs = [os.pipe() for _ in range(3)]
        (_, frames), (_, raw), (_, errors) = pairs
        reading = asyncio.ensure_future(printed.read(*(pair[0] for pair in pairs)))
        os.write(raw, b"dropped\n")
        await asyncio.sleep(0.05)
        os.write(frames, Frame(LIVE, 5, "0", b"").encoded())
        await asyncio.sleep(0.05)
        os.write(raw, b"from a child\n")
        os.write(frames, said("0", 6, "a line\nand the beginn").encoded() + said("0", 6, "ing of one\n").encoded())
        os.write(errors, b"wrong")
        for descriptor in (frames, raw, errors):
            os.close(descriptor)
        await reading

    asyncio.run(read())
    assert sorted(lines) == ["a line", "and the beginning of one", "from a child", "wrong"]
    assert shown(tmp_path / "output")["0"] >= 6
