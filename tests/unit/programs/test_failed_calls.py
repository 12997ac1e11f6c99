"""Which call has ended a program, and what of its output a retry prints anew."""

from types import SimpleNamespace

import grpc
import pytest

from onager.program_output import FAILED, STDOUT, Cut, Frame, OutputFolder, frames_of, shown
from onager.programs.stub import RECORDED, FailedCall, Program, Stub, failed_call, naming
from onager.programs.tasks import CURRENT, Task

CALL = FailedCall("0", 3, 1)


def of_spark(call=CALL):
    """Return an error as PySpark raises it, with what the process adds."""
    error = ValueError("TABLE_OR_VIEW_NOT_FOUND")
    error._onager_call = call
    return error


def ends(body):
    try:
        body()
    except (RuntimeError, SystemExit, ValueError) as error:
        return error
    raise AssertionError("it did not end")


@pytest.fixture(autouse=True)
def no_last_call():
    yield
    Program.failed = None


def test_the_error_itself_names_its_call():
    assert failed_call(of_spark()) == CALL


def test_an_error_that_was_raised_for_it_does():
    def body():
        try:
            raise of_spark()
        except ValueError as error:
            raise RuntimeError("the night's run") from error

    assert failed_call(ends(body)) == CALL


def test_an_exit_in_a_handler_does():
    def body():
        try:
            raise of_spark()
        except ValueError:
            raise SystemExit(1)  # noqa: B904 - as programs do

    assert failed_call(ends(body)) == CALL


def test_the_last_of_several_errors_does():
    def body():
        try:
            raise of_spark()
        except ValueError:
            raise of_spark(FailedCall("0", 9, 0))  # noqa: B904 - as programs do

    assert failed_call(ends(body)) == FailedCall("0", 9, 0)


def test_a_group_of_errors_does():
    assert failed_call(ExceptionGroup("tasks", [of_spark()])) == CALL


def test_an_exit_behind_a_handler_is_that_of_the_last_call_if_it_has_failed():
    assert failed_call(SystemExit(1)) is None
    Program.failed = CALL
    assert failed_call(SystemExit(1)) == CALL


class RecordedError(grpc.RpcError):
    def trailing_metadata(self):
        return ((RECORDED, "yes"),)


@pytest.mark.parametrize("calls_since", [0, 1])
def test_an_error_that_comes_behind_later_calls_names_none_since_these_may_have_written(calls_since):
    token = CURRENT.set(Task("0", "seed"))
    try:
        named = naming("ExecutePlan")
        for _ in range(calls_since):
            naming("ExecutePlan")
        error = RecordedError()

        def ask(_):
            raise error

        with pytest.raises(RecordedError):
            Stub(SimpleNamespace(stub=None)).until_outcome(ask, named)
    finally:
        CURRENT.reset(token)
    assert failed_call(error) == (None if calls_since else FailedCall("0", 1, 0))


def test_a_retry_prints_anew_what_comes_behind_the_call_that_failed(tmp_path):
    first = OutputFolder(tmp_path, 1)
    for task, number in (("0", 2), ("0", 5), ("0.0", 4), ("0.1", 2), ("0.1.0", 1), ("1", 8)):
        first.add(Frame(STDOUT, number, task, b"x\n"))
    known = {"0": 5, "0.0": 4, "0.1": 2, "0.1.0": 1, "1": 8}
    assert shown(tmp_path) == known
    cut = Cut(1, "0", 3, 1)
    assert shown(tmp_path, [cut]) == {"0": 3, "0.0": 4, "1": 8}
    OutputFolder(tmp_path, 2).add(Frame(STDOUT, 4, "0", b"y\n"))
    assert shown(tmp_path, [cut])["0"] == 4, "what the retry has printed counts"
    assert shown(tmp_path, [cut, Cut(2, "0", 4, 1)])["0"] == 4


def test_the_process_says_which_call_has_failed(tmp_path):
    import os

    from onager.programs.output import Output

    reader, writer = os.pipe()
    Output(writer, {}).failed("0.2", 7, 1)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        ((frame,), _) = frames_of(said.read())
    assert frame == Frame(FAILED, 7, "0.2", b"1")


def test_all_that_another_text_of_a_program_prints_is_shown(tmp_path):
    for attempt, number in ((1, 5), (2, 3)):
        OutputFolder(tmp_path, attempt).add(Frame(STDOUT, number, "0", b"printed"))
    assert shown(tmp_path, [Cut(1)]) == {"0": 3}
    assert shown(tmp_path, [Cut(1), Cut(2)]) == {}
