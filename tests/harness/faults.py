"""What tests plant in the executors of a run: in their rows, in their files, and in what they get."""

import atexit
import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from onager.executor.spark.jvm import Jvm
from onager.protocol import onager_pb2 as pb
from onager.testing.run import Plant
from tests.support.processes.tcp_proxy import TcpProxy, proxies_of_a_thread

SOURCE = Path(__file__).parent / "planted" / "Fault.java"
_classes: dict[Jvm, Any] = {}


def faults(jvm: Jvm) -> Any:
    """Return the class ``planted.Fault``; Spark's tasks find it, too."""
    if jvm not in _classes:
        loader = jvm.java_class("java.lang.Thread").currentThread().getContextClassLoader()
        compiler = jvm.java_class("org.codehaus.janino.SimpleCompiler")()
        compiler.setParentClassLoader(loader)
        compiler.cook(SOURCE.read_text())
        directory = Path(tempfile.mkdtemp(prefix="onager-planted-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        for name, content in compiler.getBytecodes().items():
            path = directory / (name.replace(".", "/") + ".class")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(bytes(content))
        loader.addURL(jvm.java_class("java.io.File")(f"{directory}/").toURI().toURL())
        _classes[jvm] = jvm.java_class("planted.Fault")
    return _classes[jvm]


def fault(kind: str, stage: int) -> Plant:
    """Return what plants a fault in the rows of the first task of a stage ("fail" and "hold": of all its tasks)."""

    def plant(executor: Any) -> None:
        classes = faults(executor.kernel._jvm)
        bound = executor.binder.bound

        def faulty(task_set: pb.TaskSet, *arguments: Any, **options: Any) -> Any:
            made = bound(task_set, *arguments, **options)
            if task_set.stage_id != stage:
                return made
            return replace(made, java=classes.__getattr__("in")(made.java, kind))

        executor.binder.bound = faulty

    return plant


def reading_everything(stage: int) -> Plant:
    """Return what lets each task of a stage read all that its leaves have."""

    def plant(executor: Any) -> None:
        classes = faults(executor.kernel._jvm)
        bind = executor.kernel.bind

        def faulty(session: Any, fragment: bytes, spec: dict[str, Any], leaves: Any, *fused: Any) -> Any:
            is_meant = re.search(rf"/{stage}\.0/", spec["group"])
            made = [classes.everything(leaf, session) if is_meant and leaf is not None else leaf for leaf in leaves]
            return bind(session, fragment, spec, made, *fused)

        executor.kernel.bind = faulty

    return plant


def before(stage: int, do: Callable[[Any, pb.TaskSet], None]) -> Plant:
    """Return what does something to an executor, and to what it gets, before it runs tasks of a stage."""

    def plant(executor: Any) -> None:
        run = executor.run

        def faulty(task_set: pb.TaskSet, *arguments: Any) -> None:
            if task_set.stage_id == stage:
                do(executor, task_set)
            run(task_set, *arguments)

        executor.run = faulty

    return plant


def in_files(stage: int, do: Callable[[list[Path]], None], *, reader: int = 0) -> Plant:
    """Return what does something to the row files of a stage once they are all there; *reader*, or the next, reads."""
    done = []

    def once(executor: Any, task_set: pb.TaskSet) -> None:
        if not done:
            done.append(True)
            directory = Path(executor._exchange_dir) / task_set.job_id / str(stage)
            do(sorted(path for path in directory.iterdir() if path.stat().st_size))

    return before(reader or stage + 1, once)


def with_wrong_numbers(executor: Any, task_set: pb.TaskSet, **wrong: Callable[[int], int]) -> None:
    """Give the executor other numbers of the outputs that it reads."""
    del executor
    for location in task_set.inputs:
        for output in location.outputs:
            for name, change in wrong.items():
                setattr(output, name, change(getattr(output, name)))


def together(*plants: Plant) -> Plant:
    """Return what plants all of *plants*."""

    def plant(executor: Any) -> None:
        for each in plants:
            each(executor)

    return plant


@contextlib.contextmanager
def proxied(do: Callable[[TcpProxy], None]) -> Iterator[Plant]:
    """Give what lets executors read each other's streams through proxies, to each of which *do* is done."""
    with proxies_of_a_thread() as make:

        def plant(executor: Any) -> None:
            proxy, loop = make(executor.stream_address)
            loop.call_soon_threadsafe(do, proxy)
            executor.stream_address = proxy.address

        yield plant
