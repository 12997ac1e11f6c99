"""The real agent of an executor around a worker without Spark that does what the test says."""

import asyncio
import os
import threading
from contextlib import AsyncExitStack, asynccontextmanager

from onager.clock import SystemClock
from onager.executor.agent.agent import Agent
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.agent.push import Port
from onager.executor.agent.registration import Identity
from onager.executor.settings import ExecutorSettings
from onager.ids import new_incarnation
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import ServerAccess
from onager.protocol.task_keys import task_id, task_keys
from tests.support.fakes.scripted_executor import Run


class ScriptedWorker:
    """Reports what `run` returns for a task; a task for which it returns None runs until `finish`."""

    stream_address = ""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.ran = []
        self.cancelled = []
        self.going_on = []
        self._cancels = threading.Lock()
        """Held by a call of `cancel`: the agent makes two at once, and both may name one task."""

    def start(self, assignment, on_report):
        for task, key in zip(assignment.task_set.tasks, task_keys(assignment.task_set), strict=True):
            self.ran.append(key)
            report = self.run(assignment.task_set, task)
            if report is None:
                self.going_on.append((assignment.task_set, task, key, on_report))
            else:
                on_report(report)

    def finish(self, run: Run) -> None:
        going_on, self.going_on = self.going_on, []
        for task_set, task, _, on_report in going_on:
            on_report(run(task_set, task))

    def cancel(self, tasks):
        with self._cancels:
            for entry in [e for e in self.going_on if e[2] in tasks]:
                self.going_on.remove(entry)
                self.cancelled.append(entry[2])
                killed = pb.Failure(kind="task_killed", message="killed")
                entry[3](pb.TaskReport(task=task_id(entry[2]), failure=killed))

    def connect(self, _call, _catalog):
        return pb.ConnectReply(failure=pb.ConnectFailure(message="there is no Spark here"))

    def exchange_contents(self):
        return None

    def kept_jobs(self):
        return ()

    def streamed_jobs(self):
        return ()

    def clean_up(self, request):
        pass

    def check_exchange(self) -> None:
        """There is always space here."""

    def sample_load(self):
        return None

    def progress(self):
        return ()

    def is_alive(self):
        return True

    def end(self):
        return None

    def enforce_deadlines(self):
        return ""

    def kill(self):
        pass

    def close(self):
        pass


class RunningAgent:
    def __init__(self, worker, gateway, agent, running, incarnation):
        self.worker, self.gateway, self.agent, self.running = worker, gateway, agent, running
        self.incarnation = incarnation

    @property
    def address(self):
        """Return the scheduler that it talks with."""
        return self.gateway._addresses[self.gateway._current]


@asynccontextmanager
async def agent(
    addresses, executor_id, run, *, slots=2, first=0, mode="pull", access=None, stream_address="", poll_s=5, **more
):
    """Run an executor that turns from one of *addresses* to the next, as the real one does.

    Its polls wait for *poll_s*, which may be longer than its settings allow.
    """
    worker = ScriptedWorker(run)
    settings = ExecutorSettings(
        scheduler=",".join(addresses),
        executor_id=executor_id,
        slots=slots,
        exchange_dir="/tmp",
        mode=mode,
        **more,
    ).model_copy(update={"poll_wait_ms": round(1000 * poll_s)})
    identity = Identity(
        incarnation=new_incarnation(),
        pid=os.getpid(),
        spark_version="4.3.0",
        python_version="3.11",
        stream_address=stream_address,
    )
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(SchedulerGateway(tuple(addresses), access, first=first))
        port = Port(settings, ServerAccess(settings.server_security, settings.listen)) if mode == "push" else None
        address = "" if port is None else port.address
        made = Agent(settings, identity, worker, gateway, SystemClock(), address=address)
        if port is not None:
            await stack.enter_async_context(port.serving(made))
        running = asyncio.create_task(made.run())
        try:
            yield RunningAgent(worker, gateway, made, running, identity.incarnation)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
