"""The process of a simulated program, in which the client of `onager.programs` runs.

That client blocks, and a simulation has one thread. So each thread of the program is a greenlet, which hands over to
the loop whenever it waits. Its names, numbers, tries and errors are the client's own; what PySpark does above it, to
make requests and to read answers, is `Calls`.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import partial
from os import path as os_path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol
from unittest import mock

import pyarrow as pa
from google.protobuf import message_factory
from greenlet import getcurrent, greenlet
from grpc import RpcError
from grpc.aio import AioRpcError

from onager.executor.programs.relay import _Relay
from onager.programs import once as once_module
from onager.programs import stub as stub_module
from onager.programs.channels import Way
from onager.programs.once import once
from onager.programs.stub import LOST, REFUSED, FailedCall, Stub, failed_call
from onager.programs.tasks import CURRENT, ROOT, Task, current
from onager.protocol.security import PROGRAM_HEADER
from onager.protocol.spark_connect import METHODS, SERVICE, request_of
from tests.simulation.network import Aborted, ServerContext, rpc_error

if TYPE_CHECKING:
    from tests.simulation.programs.ledger import Ledger
    from tests.simulation.world import World

KILLED = -9
_STREAMS = ("ExecutePlan", "ReattachExecute")
_MODULE = "pyspark.sql.connect.proto"
_INTERRUPT_TAG = 2


class Host(Protocol):
    """Who runs a program."""

    life: str
    process: Any


class SparkError(Exception):
    """An error that Spark, or Onager, has reported to a program."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class _Exited(BaseException):
    """The process ends here and now."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def wait(work: Any) -> Any:
    """Return what awaiting *work* brings; called by a thread of a program."""
    return getcurrent().parent.switch(work)  # type: ignore[union-attr]


class ProgramProcess:
    """One process of a program: an attempt."""

    pid = 0
    """It is no process of this machine."""

    def __init__(
        self, world: "World", host: Host, relay: _Relay, terms: Mapping[str, Any], main: Callable[["Calls"], int]
    ) -> None:
        self._world, self._host, self._relay, self._main = world, host, relay, main
        self.ledger: Ledger = world.ledger
        self.program_id, self.attempt, self.user = str(terms["program_id"]), int(terms["attempt"]), str(terms["user"])
        self._shown = ((PROGRAM_HEADER, f"{self.program_id}/{self.attempt}/{terms['secret']}"),)
        self._seed = str(terms["seed"])
        self.name = f"{host.life}/{self.program_id}@{self.attempt}"
        self.process = world.loop.start_process(self.name)
        self.failed: FailedCall | None = None
        """The call whose error ends the program."""
        self.refused = ""
        """Why the program cannot go on, if it cannot."""
        self.is_lost = False
        """Whether another attempt counts."""
        self.threads: list[asyncio.Task[Any]] = []
        self._code: asyncio.Future[int] = world.loop.create_future()
        fields = {
            "id": self.program_id,
            "attempt": self.attempt,
            "recorded": terms["calls"],
            "retries": terms["retries"],
            "stub": Stub(Way(("unix:",), lambda _: _Wire(self))),
            "line": "app.py:1",
        }
        self._state = type("Program", (stub_module.Program,), fields)

    def start(self) -> None:
        self._world.trace(f"{self.name} starts")
        self._world.loop.spawn(self.process, self._run_main())

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._end(KILLED)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    @property
    def scheduler_address(self) -> str:
        """Return where the host passes its calls on to."""
        channel: Any = self._relay._schedulers.channel
        return str(channel.address)

    @property
    def is_alive(self) -> bool:
        return not self._code.done()

    def _end(self, code: int) -> None:
        if self.is_alive:
            self._world.trace(f"{self.name} ends with {code}")
            self._code.set_result(code)
            self._world.loop.kill(self.process)

    # ---------------------------------------------------------------- threads

    async def _run_main(self) -> None:
        root = Task(ROOT, self._seed)
        code = await self.run(partial(root.run, self._body))
        if code is not None:
            self.ledger.ended_itself(self.program_id, self.attempt, code)
            self._end(code)

    def _body(self) -> int:
        calls = Calls(self, ROOT, current().session_id())
        try:
            code = self._main(calls)
        except SparkError as error:
            self._world.trace(f"{self.name} breaks off: {error}")
            self.failed = failed_call(error)
            return 1
        if code:
            self.failed = failed_call(SystemExit(code))
        return code

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run *work* as a thread of the program; return what it does, None if the process ends with it."""
        thread = greenlet(work)
        thread.gr_context = copy_context()
        try:
            given = self._enter(thread.switch)
            while not thread.dead:
                try:
                    answer = await given
                except BaseException as error:  # noqa: BLE001 - it belongs to the thread
                    given = self._enter(thread.throw, error)
                else:
                    given = self._enter(thread.switch, answer)
        except _Exited as exited:
            self.is_lost = exited.code == LOST
            self.refused = self.refused or ("refused" if exited.code == REFUSED else "")
            if exited.code not in (LOST, KILLED):
                self.ledger.ended_itself(self.program_id, self.attempt, exited.code)
            self._end(exited.code)
            return None
        return given

    def _enter(self, switch: Callable[..., Any], *given: Any) -> Any:
        """Go on with a thread; the client's module knows one program, which is this one for so long."""
        for module in (stub_module, once_module):
            module.Program = self._state  # type: ignore[attr-defined]
        return switch(*given)

    def begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        thread = self._world.loop.spawn(self.process, work)
        self.threads.append(thread)
        return thread

    def say(self, text: str) -> None:
        self._world.trace(f"{self.name} says: {text}")
        if text.startswith("the program cannot go on"):
            self.refused = text
            self.ledger.fail(f"{self.name}: {text}")

    def received(self, label: str, what: str) -> None:
        """Take in what came of a call."""
        self.ledger.answered(self.program_id, self.attempt, label, what)
        self._world.program_weather.answered(self)

    # ---------------------------------------------------------------- calls, which the host passes on

    async def unary(self, method: str, content: bytes, metadata: Any) -> bytes:
        self._world.program_weather.call_begins(self)
        handler = self._relay.service(SimpleNamespace(method=f"/{SERVICE}/{method}"))

        async def passed_on() -> bytes | AioRpcError:
            try:
                context = ServerContext(self.name, (*metadata, *self._shown))
                return bytes(await handler.unary_unary(content, context))
            except Aborted as refused:
                return rpc_error(refused.code, refused.details, refused.metadata)

        answer = await self._world.loop.spawn(self._host.process, passed_on())
        if isinstance(answer, AioRpcError):
            raise answer
        return answer

    def stream(self, method: str, content: bytes, metadata: Any) -> "asyncio.Queue[Any]":
        """Return where the responses come; then an error, or None."""
        self._world.program_weather.call_begins(self)
        handler = self._relay.service(SimpleNamespace(method=f"/{SERVICE}/{method}"))
        came: asyncio.Queue[Any] = asyncio.Queue()

        async def passed_on() -> None:
            end: AioRpcError | None = None
            try:
                async for response in handler.unary_stream(
                    content, ServerContext(self.name, (*metadata, *self._shown))
                ):
                    came.put_nowait(response)
            except Aborted as refused:
                end = rpc_error(refused.code, refused.details, refused.metadata)
            came.put_nowait(end)

        self._world.loop.spawn(self._host.process, passed_on())
        return came


class _Wire:
    """What PySpark's own stub is: it calls, and raises gRPC's errors."""

    def __init__(self, process: ProgramProcess) -> None:
        self._process = process

    def __getattr__(self, method: str) -> Any:
        return partial(self._stream if method in _STREAMS else self._unary, method)

    def _unary(self, method: str, request: Any, *, metadata: Any = (), **_: Any) -> Any:
        answer = wait(self._process.unary(method, request.SerializeToString(), tuple(metadata)))
        return _answer_of(method).FromString(answer)

    def _stream(self, method: str, request: Any, *, metadata: Any = (), **_: Any) -> Iterator[Any]:
        came = self._process.stream(method, request.SerializeToString(), tuple(metadata))
        while (response := wait(came.get())) is not None:
            if isinstance(response, AioRpcError):
                raise response
            yield _answer_of(method).FromString(response)


def _answer_of(method: str) -> Any:
    return message_factory.GetMessageClass(METHODS[method].output_type)


class Calls:
    """The calls that one thread of a program makes, as PySpark would; each knows what it is to be the answer to.

    The ledger learns what came of each. Its label says where in the program it stands, whatever name the client gives.
    """

    def __init__(self, process: ProgramProcess, thread: str, session_id: str) -> None:
        self._process, self._thread, self._session_id = process, thread, session_id
        self._count = 0
        self._threads = 0

    # ---------------------------------------------------------------- what a program does

    def analyze(self) -> int:
        """Ask Spark about a plan; return a number that it draws."""
        request, label = self._request("AnalyzePlan")
        request.tree_string.plan.root = label.encode()
        answer = self._received(label, lambda: self._stub.AnalyzePlan(request).tree_string.tree_string)
        return int(self._check(label, answer))

    def query(self, tag: str = "") -> list[int]:
        """Return the rows of a query."""
        request, label = self._request("ExecutePlan", tag)
        request.plan.root = b"\xff" + label.encode()
        rows: list[int] = self._received(label, lambda: self._rows(request))
        self._process.ledger.check_rows(self._process.program_id, label, rows)
        return rows

    def sql(self, words: str, tag: str = "") -> str:
        """Carry a command out: INSERT, FAIL, VIEW; return what it answers."""
        request, label = self._request("ExecutePlan", tag)
        request.plan.command.sql_command.sql = f"{words} {label}"
        return self._check(label, self._received(label, lambda: self._relation(request), words))

    def set(self, key: str, value: str) -> None:
        """Set a setting."""
        request, label = self._request("Config")
        request.operation.set.pairs.add(key=key, value=value)
        self._received(label, lambda: len(self._stub.Config(request).pairs))
        self._process.ledger.is_set(self._process.program_id, self._process.attempt, key, value)

    def get(self, key: str) -> str:
        """Return a setting."""
        request, label = self._request("Config")
        request.operation.get_option.keys.append(key)
        value: str = self._received(label, lambda: self._stub.Config(request).pairs[0].value)
        return value

    def interrupt(self, tag: str) -> int:
        """Cancel what runs with a tag; return how much that was."""
        request, label = self._request("Interrupt")
        request.interrupt_type, request.operation_tag = _INTERRUPT_TAG, tag
        return len(self._received(label, lambda: sorted(self._stub.Interrupt(request).interrupted_ids)))

    def once(self, function: Callable[["Calls"], int]) -> int:
        """Return what *function* returns, as it is recorded."""
        label = self._label()
        inner = Calls(self._process, f"{label.partition(':')[2]}.once", self._session_id)
        value: int = self._received(label, lambda: once(partial(_named, function), inner))
        return value

    def start(self, work: Callable[["Calls"], None]) -> Callable[[], bool]:
        """Start a thread; return what waits for its end, and says whether it ended well."""
        self._threads += 1
        task, calls = current().new(), Calls(self._process, f"{self._thread}t{self._threads}", self._session_id)

        def body() -> bool:
            try:
                task.run(work, calls)
            except SparkError:
                return False
            return True

        thread = self._process.begin(self._process.run(body))
        return lambda: bool(wait(thread))

    def draw(self) -> int:
        """Return another number each time: what a program finds outside of Spark."""
        return self._process.ledger.draw()

    def complain(self, what: str) -> None:
        """Say that an answer is wrong."""
        self._process.ledger.fail(f"{self._process.name}: {what}")

    def sleep(self, pause_s: float) -> None:
        """Do nothing."""
        wait(asyncio.sleep(pause_s))

    # ---------------------------------------------------------------- parts

    @property
    def _stub(self) -> Any:
        return stub_module.Program.stub

    def _label(self) -> str:
        self._count += 1
        return f"{self._process.program_id}:{self._thread}.{self._count}"

    def _request(self, method: str, tag: str = "") -> tuple[Any, str]:
        request = request_of(method)(session_id=self._session_id)
        request.user_context.user_id = self._process.user
        if tag:
            request.tags.append(tag)
        return request, self._label()

    def _received(self, label: str, ask: Callable[[], Any], words: str = "") -> Any:
        """Return what *ask* does, and tell the ledger; `SparkError` for an error."""
        task, ledger = CURRENT.get(), self._process.ledger
        name = f"{task.path}/{task.calls + 1:06d}"
        ledger.asked(self._process.program_id, self._process.attempt, label, name, words)
        try:
            answer = ask()
        except RpcError as raw:
            what = f"{raw.code().name}: {raw.details()}"  # type: ignore[attr-defined]
            self._process.received(label, f"error {what}")
            raise SparkError(what) from raw
        self._process.received(label, f"answer {answer}")
        return answer

    def _check(self, label: str, answer: str) -> str:
        """Return the rest of an answer, which says what it is the answer to."""
        asked, _, rest = answer.rpartition("=")
        if asked != label:
            self._process.ledger.fail(f"{label} is answered by what came of {asked or 'nothing'}")
        return rest

    def _relation(self, request: Any) -> str:
        found = [r for r in self._stub.ExecutePlan(request) if r.HasField("sql_command_result")]
        return str(found[0].sql_command_result.relation.decode()) if found else ""

    def _rows(self, request: Any) -> list[int]:
        rows: list[int] = []
        for response in self._stub.ExecutePlan(request):
            if response.HasField("arrow_batch"):
                with pa.ipc.open_stream(response.arrow_batch.data) as batches:
                    rows += [row for batch in batches for row in batch.column(0).to_pylist()]
        return rows


def _named(function: Callable[[Calls], int], calls: Calls) -> int:
    return function(calls)


@contextmanager
def clients_patched(world: "World") -> Iterator[None]:
    """Have the client of `onager.programs` use the simulation's time, and end no process of this machine."""

    def process() -> ProgramProcess:
        return stub_module.Program.stub._way.stub._process  # type: ignore[union-attr,no-any-return]

    def exit_(code: int) -> None:
        raise _Exited(code)

    def kill(*_: Any) -> None:
        raise _Exited(KILLED)

    time = SimpleNamespace(sleep=lambda pause_s: wait(asyncio.sleep(pause_s)), monotonic=world.loop.time)
    machine = SimpleNamespace(_exit=exit_, kill=kill, getpid=lambda: 0, path=os_path)
    messages = SimpleNamespace(ReattachExecuteRequest=request_of("ReattachExecute"), ConfigRequest=request_of("Config"))
    before = sys.modules.get(_MODULE)
    program = stub_module.Program
    with ExitStack() as stack:
        for target, replacement in (
            ("onager.programs.stub.time", time),
            ("onager.programs.channels.time", time),
            ("onager.programs.stub.os", machine),
            ("onager.programs.stub.say", lambda text: process().say(text)),
        ):
            stack.enter_context(mock.patch(target, replacement))
        sys.modules[_MODULE] = messages  # type: ignore[assignment] # PySpark's own are the same on the wire
        try:
            yield
        finally:
            for module in (stub_module, once_module):
                module.Program = program  # type: ignore[attr-defined]
            if before is None:
                del sys.modules[_MODULE]
            else:
                sys.modules[_MODULE] = before
