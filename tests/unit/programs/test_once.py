"""`onager.once`: a function is called until what came of it is recorded."""

from types import SimpleNamespace

import pytest
from pyspark.sql.connect.proto import ConfigResponse

import onager
from onager.programs import once as once_module
from onager.programs.stub import CALL, Program
from onager.programs.tasks import CURRENT, Task, current

once = once_module.once


class Records:
    """Stands for a scheduler: keeps what is recorded, by the name of the call."""

    def __init__(self):
        self.kept = {}
        self.asked = []

    def until_outcome(self, ask, named):  # noqa: ARG002 - as the stub has it
        return ask(SimpleNamespace(Config=self.config))

    def config(self, request, metadata):
        name = dict(metadata)["onager-call"]
        self.asked.append(name)
        for pair in request.operation.set.pairs:
            self.kept.setdefault(name, pair)
        return ConfigResponse(pairs=[self.kept[name]] if name in self.kept else [])


@pytest.fixture
def records(monkeypatch):
    made = Records()
    monkeypatch.setattr(Program, "stub", made)
    monkeypatch.setattr(Program, "failed", None)
    return made


@pytest.fixture
def begin():
    """Begin the program's main thread, as each attempt does."""
    tokens = []

    def begun():
        tokens.append(CURRENT.set(Task("0", "seed")))

    begun()
    yield begun
    for token in reversed(tokens):
        CURRENT.reset(token)


def test_outside_of_a_run_a_function_is_just_called():
    assert onager.once(divmod, 7, 3) == (2, 1)
    assert onager.program is None


def test_a_function_is_called_once_and_its_result_stands(records, begin):
    called = []

    def draw(n):
        called.append(n)
        return {"n": n}

    assert once(draw, 4) == {"n": 4}
    begin()
    assert once(draw, 5) == {"n": 4}
    assert called == [4]
    assert once(draw, 6) == {"n": 6}
    assert records.asked == ["0/1", "0/1", "0/1", "0/2", "0/2"]


class OwnError(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


class PlainError(Exception):
    pass


def test_an_error_is_raised_again_each_time_and_is_that_of_the_call(records, begin):
    def fail():
        raise PlainError("no answer")

    for _ in range(2):
        with pytest.raises(PlainError, match="no answer") as raised:
            once(fail)
        assert getattr(raised.value, CALL)[:3] == ("0", 1, 0)
        assert Program.failed == getattr(raised.value, CALL)
        begin()
    assert len(records.kept) == 1


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (OwnError(7), (OwnError, "code 7")),
        (FileNotFoundError(2, "none", "/x"), (FileNotFoundError, "[Errno 2] none: '/x'")),
        (PlainError(lambda: None), (RuntimeError, None)),
    ],
)
def test_an_error_is_the_same_in_each_attempt_however_it_can_be_pickled(records, begin, error, known):
    def fail():
        raise error

    seen = []
    for _ in range(2):
        with pytest.raises(Exception) as raised:
            once(fail)
        seen.append((type(raised.value), str(raised.value)))
        begin()
    assert seen[0] == seen[1]
    assert seen[0][0] is known[0]
    assert known[1] in (seen[0][1], None)


@pytest.mark.parametrize(
    ("result", "error", "says"),
    [(lambda: None, TypeError, "cannot be pickled"), (bytes(1 << 20), ValueError, "may have 1,048,576")],
)
def test_a_result_that_cannot_be_recorded_is_an_error(records, begin, result, error, says):
    with pytest.raises(error, match=says):
        once(lambda: result)
    assert len(records.kept) == 1


def test_what_a_function_does_in_spark_is_of_a_task_of_its_own(records, begin):
    paths = []

    def inner():
        paths.append(current().path)

    once(inner)
    begin()
    once(inner)
    assert current().new().path == "0.1", "as if it had been called"
    assert paths == ["0.0"]


def test_a_function_that_is_interrupted_leaves_no_record(records, begin):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(interrupted)
    assert not records.kept


def test_what_a_program_knows_of_itself(records, begin, monkeypatch):
    for name, value in {"id": "nightly", "attempt": 3, "recorded": 1, "made": 0}.items():
        monkeypatch.setattr(Program, name, value)
    program = onager.program
    assert (program.id, program.attempt, program.is_replaying) == ("nightly", 3, True)
    once(int)
    assert not program.is_replaying
