"""The tasks of a program: who makes a call.

A task is a path: who started it, and as which of its tasks. Threads, calls of pools and coroutines are tasks; the
threads that pools and libraries start for themselves are none. What PySpark draws follows from the task, and so is the
same in each attempt.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import hashlib
import importlib
import multiprocessing.pool
import os
import random
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

ROOT = "0"
"""The path of the main thread."""
RESULT = "1"
"""The path of what a script of SQL gives as its result: nothing that the program starts has it."""
_ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep
_PLANS = 2**20
"""Ids of plans that a task may draw."""


class Task:
    """A thread, a call of a pool, or a coroutine of the program."""

    def __init__(self, path: str, seed: str) -> None:
        self.path = path
        self._seed = seed
        self._tasks = count()
        self.tasks = 0
        """How many it has started."""
        self.calls = 0
        """How many it has made."""
        self._sessions = count()
        self._plans = count(1)
        self._variables = count()
        self.draws = random.Random(f"{seed}/{path}")
        """Draws for PySpark."""
        self._uuids = random.Random(f"{seed}/{path}/uuids")

    def new(self) -> "Task":
        """Return the next task that this one starts."""
        number = next(self._tasks)
        self.tasks = number + 1
        return Task(f"{self.path}.{number}", self._seed)

    def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call *function* as this task."""
        before = CURRENT.set(self)
        try:
            return function(*arguments, **named)
        finally:
            CURRENT.reset(before)

    def call(self) -> str:
        """Return the name of the task's next call."""
        self.calls += 1
        return f"{self.path}/{self.calls}"

    def of_result(self) -> "Task":
        """Return the task whose only query is the result of a script of SQL."""
        return Task(RESULT, self._seed)

    def session_id(self) -> str:
        """Return the id of the task's next session."""
        return self.uuid_of(f"session {next(self._sessions)}")

    def uuid_of(self, what: str) -> str:
        """Return the uuid of something that the task names."""
        digest = hashlib.sha256(f"{self._seed}/{self.path}/{what}".encode()).digest()
        return str(uuid.UUID(bytes=digest[:16], version=4))

    def uuid4(self) -> uuid.UUID:
        """Draw a uuid for the program: what others draw shifts no seed of PySpark's."""
        return uuid.UUID(int=self._uuids.getrandbits(128), version=4)

    def plan_id(self) -> int:
        """Return the next id of a plan, which no other task has."""
        high = int.from_bytes(hashlib.sha256(self.path.encode()).digest()[:4], "big")
        return high * _PLANS + next(self._plans)

    def variable(self) -> int:
        """Return the next number of a variable of a lambda."""
        return next(self._variables)


CURRENT: contextvars.ContextVar[Task] = contextvars.ContextVar("onager_task")
_is_starting_workers = threading.local()
_process = {"pid": os.getpid()}
"""That of the program; a process that it forks has another id."""


def current() -> Task:
    """Return the task that runs; raises for a thread of unknown origin, and for a forked process."""
    if os.getpid() != _process["pid"]:
        raise RuntimeError("a process that the program forked cannot use its Spark sessions: use threads")
    task = CURRENT.get(None)
    if task is None:
        name = threading.current_thread().name
        raise RuntimeError(
            f"the thread {name} was not started by threading, concurrent.futures, ThreadPool or asyncio, "
            "so its calls of Spark have no name that a later attempt would find: start it by one of these"
        )
    return task


def follow_tasks() -> None:
    """Have whatever starts work of the program name it."""
    _process["pid"] = os.getpid()
    start, inner = threading.Thread.start, threading.Thread._bootstrap_inner

    def started(thread: threading.Thread) -> None:
        task = CURRENT.get(None)
        is_own = not (getattr(_is_starting_workers, "now", False) or _is_of_library(sys._getframe(1)))
        if task is not None and is_own:
            thread._onager_task = task.new()
        start(thread)

    def bootstrapped(thread: threading.Thread) -> None:
        if (task := getattr(thread, "_onager_task", None)) is not None:
            CURRENT.set(task)
        inner(thread)

    threading.Thread.start = started
    threading.Thread._bootstrap_inner = bootstrapped
    _follow_pools()
    _follow_callbacks()
    _follow_coroutines()


@functools.cache
def _libraries() -> tuple[str, ...]:
    return tuple(os.path.dirname(importlib.import_module(name).__file__ or "") + os.sep for name in ("grpc", "pyspark"))


def _is_of_library(frame: Any) -> bool:
    """Return whether gRPC or PySpark starts a thread, which need not do so in each attempt."""
    return bool(frame.f_code.co_filename.startswith(_libraries()))


_drawn = uuid.uuid4


def uuid4() -> uuid.UUID:
    """Draw a uuid that follows from the task; elsewhere, such as in a function of the program on an executor, any."""
    task = CURRENT.get(None)
    return _drawn() if task is None else task.uuid4()


def uuid1(node: Any = None, clock_seq: Any = None) -> uuid.UUID:
    """Draw a uuid as `uuid4` does."""
    return uuid4()


def _starting_workers(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        before = getattr(_is_starting_workers, "now", False)
        _is_starting_workers.now = True
        try:
            return function(*arguments, **named)
        finally:
            _is_starting_workers.now = before

    return wrapped


def _as_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* as the next task of the current one, if there is one."""
    task = CURRENT.get(None)
    return function if task is None else functools.partial(task.new().run, function)


def _each_as_task(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return *function* as one of which each call is a task of its own, started by the next task of the current one."""
    task = CURRENT.get(None)
    if task is None or function is None:
        return function
    of_all = task.new()
    return lambda *arguments: of_all.new().run(function, *arguments)


def _callbacks(*callbacks: Callable[..., Any] | None) -> tuple[Callable[..., Any] | None, ...]:
    """Return *callbacks* as the next tasks of the current one."""
    return tuple(None if callback is None else _as_task(callback) for callback in callbacks)


class _Each:
    """Calls a function with each item as the item's own task."""

    def __init__(self, function: Callable[..., Any], *, is_star: bool = False) -> None:
        self._function = function
        self._is_star = is_star

    def __call__(self, named: Any) -> Any:
        task, item = named
        arguments = item if self._is_star else (item,)
        return self._function(*arguments) if task is None else task.run(self._function, *arguments)


def _named(items: Any) -> Iterator[Any]:
    task = CURRENT.get(None)
    for item in items:
        yield (None if task is None else task.new()), item


def _follow_pools() -> None:
    executor, pool = concurrent.futures.ThreadPoolExecutor, multiprocessing.pool.ThreadPool
    make_executor, make_pool = executor.__init__, _starting_workers(pool.__init__)

    def made(
        self: Any,
        max_workers: Any = None,
        thread_name_prefix: str = "",
        initializer: Any = None,
        *more: Any,
        **named: Any,
    ) -> None:
        make_executor(self, max_workers, thread_name_prefix, _each_as_task(initializer), *more, **named)

    executor.__init__ = functools.wraps(make_executor)(made)
    pool.__init__ = lambda self, processes=None, initializer=None, initargs=(): make_pool(
        self, processes, _each_as_task(initializer), initargs
    )
    submit = _starting_workers(executor.submit)
    executor.submit = lambda self, function, /, *arguments, **named: submit(
        self, _as_task(function), *arguments, **named
    )
    apply_async, map_async = pool.apply_async, pool._map_async
    imap, imap_unordered = pool.imap, pool.imap_unordered
    pool.apply_async = lambda self, func, args=(), kwds={}, callback=None, error_callback=None: apply_async(
        self, _as_task(func), args, kwds, *_callbacks(callback, error_callback)
    )

    def mapped(self: Any, func: Any, iterable: Any, mapper: Any, chunksize: Any = None, *callbacks: Any) -> Any:
        is_star = mapper is multiprocessing.pool.starmapstar
        each, items = _Each(func, is_star=is_star), list(_named(iterable))
        return map_async(self, each, items, multiprocessing.pool.mapstar, chunksize, *_callbacks(*callbacks))

    pool._map_async = mapped
    pool.imap = lambda self, func, iterable, chunksize=1: imap(self, _Each(func), list(_named(iterable)), chunksize)
    pool.imap_unordered = lambda self, func, iterable, chunksize=1: imap_unordered(
        self, _Each(func), list(_named(iterable)), chunksize
    )


def _follow_callbacks() -> None:
    """Have what is called when a future is done be a task of who asked for that, whichever thread is the first."""
    future = concurrent.futures.Future
    add = future.add_done_callback

    def added(self: Any, fn: Callable[..., Any]) -> None:
        is_own = not sys._getframe(1).f_code.co_filename.startswith(_ASYNCIO)
        add(self, _as_task(fn) if is_own else fn)

    future.add_done_callback = added


def _follow_coroutines() -> None:
    to_thread, create_task = asyncio.to_thread, asyncio.BaseEventLoop.create_task

    async def to_thread_as_task(function: Any, /, *arguments: Any, **named: Any) -> Any:
        return await to_thread(_as_task(function), *arguments, **named)

    def create_as_task(self: Any, coroutine: Any, *, name: Any = None, context: Any = None) -> Any:
        task = CURRENT.get(None)
        if task is not None:
            context = contextvars.copy_context() if context is None else context.copy()
            context.run(CURRENT.set, task.new())
        return create_task(self, coroutine, name=name, context=context)

    asyncio.to_thread = to_thread_as_task
    asyncio.threads.to_thread = to_thread_as_task
    asyncio.BaseEventLoop.create_task = create_as_task
