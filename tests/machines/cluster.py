"""etcd, a scheduler and an executor on each of three machines, and HAProxy beside the clients outside."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

import onager
from deploy.parts import Part
from onager.errors import OnagerError
from tests.machines.network import OUTSIDE, Machine, found, make_hub
from tests.support.etcd.programs import program
from tests.support.waiting import HANGS_S

MACHINES: Final = 3
KINDS: Final = ("etcd", "scheduler", "executor")
ROOT: Final = Path(__file__).parents[2]
PROXY: Final = f"{OUTSIDE}:50060"
_SMALL_SPARK: Final = {
    "spark.driver.memory": "640m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
}


class Cluster:
    """Three machines and what runs on them.

    *ahead_s*: by how much the clock of a scheduler is ahead; *can_be_sick*: whether the share can be, for schedulers;
    *executors*: the machines that have one.
    """

    def __init__(
        self,
        directory: Path,
        *,
        ahead_s: Mapping[int, int] | None = None,
        can_be_sick: bool = False,
        executors: Sequence[int] = (1, 2, 3),
    ) -> None:
        self.directory = directory
        self._can_be_sick = can_be_sick
        share = directory / "share"
        (share / "exchange").mkdir(parents=True)
        disk = directory / "disk"
        disk.mkdir()
        make_hub(directory, range(1, MACHINES + 1))
        self.machines: dict[int, Machine] = {}
        for number in range(1, MACHINES + 1):
            self.machines[number] = Machine(number, disk, share)
        self.parts: dict[str, Part] = {}
        for number, machine in self.machines.items():
            self._add(machine, "etcd", self._etcd(machine), {})
            named = {
                "ONAGER_SCHEDULER_SCHEDULER_ID": f"scheduler-{number}",
                "ONAGER_SCHEDULER_HISTORY_DIR": str(machine.share / "histories"),
                "ONAGER_SCHEDULER_HISTORY_RETENTION_S": "20",
            }
            self._add(machine, "scheduler", self._scheduler(machine), named | _clock((ahead_s or {}).get(number, 0)))
            if number in executors:
                self._add(machine, "executor", self._executor(machine), {})
        self.proxy = self._proxy()

    def addresses(self, first: int = 1) -> str:
        """Return where clients find the schedulers, beginning with that of the machine *first*."""
        numbers = sorted(self.machines, key=lambda number: (number != first, number))
        return ",".join(f"{self.machines[number].address}:50050" for number in numbers)

    def behind_proxy(self) -> int:
        """Return the machine whose scheduler the proxy's clients talk to."""
        found = psutil.Process(self.proxy.pid).net_connections("tcp")
        connected = {
            c.raddr.ip for c in found if c.raddr and c.raddr.port == 50050 and c.status == psutil.CONN_ESTABLISHED
        }
        (number,) = (number for number, machine in self.machines.items() if machine.address in connected)
        return number

    def part(self, kind: str, number: int) -> Part:
        """Return what runs on a machine."""
        return self.parts[f"{kind}-{number}"]

    def _parts(self, kind: str) -> list[Part]:
        return [part for name, part in self.parts.items() if name.startswith(f"{kind}-")]

    def start(self) -> None:
        """Start everything, and return when all executors take work."""
        for kind in KINDS:
            for part in self._parts(kind):
                part.start()
        self.proxy.start()
        self.await_whole(HANGS_S)

    def await_whole(self, within_s: float) -> None:
        """Return when all schedulers and executors are there."""
        end_s = time.monotonic() + within_s
        why = ""
        while time.monotonic() < end_s:
            if ended := [part.name for part in self.parts.values() if not part.is_running]:
                raise RuntimeError(f"{', '.join(ended)} ended; logs: {self.directory}")
            try:
                with connect(self.addresses(), retry_timeout_s=1.0) as client:
                    alive = [e.executor_id for e in client.executors() if e.state == "alive"]
                    schedulers = len(client.schedulers())
            except OnagerError as error:
                why = str(error)
            else:
                if (len(alive), schedulers) == (len(self._parts("executor")), len(self.machines)):
                    return
                why = f"{schedulers} schedulers, and the executors {alive}"
            time.sleep(0.5)
        raise TimeoutError(f"the cluster is not whole after {within_s:g} s: {why}; logs: {self.directory}")

    def stop(self) -> None:
        """End everything."""
        self.proxy.kill()
        for part in self.parts.values():
            part.kill()
        for machine in self.machines.values():
            machine.close()

    # -- what is done to it

    def send(self, part: Part, number: signal.Signals) -> None:
        """Send a signal to what a part is, and to all that it has started."""
        for process in psutil.Process(part.pid).children(recursive=True):
            process.send_signal(number)

    @contextmanager
    def stopped(self, kind: str, number: int) -> Iterator[None]:
        """Stop a process with SIGSTOP, and let it go on at the end."""
        part = self.part(kind, number)
        self.send(part, signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(part, signal.SIGCONT)

    @contextmanager
    def unplugged(self, number: int) -> Iterator[None]:
        """Take a machine off the network."""
        self.machines[number].unplug()
        try:
            yield
        finally:
            self.machines[number].plug()

    @contextmanager
    def gone(self, number: int) -> Iterator[None]:
        """Have a machine vanish without a word, and come back with its disk."""
        machine = self.machines[number]
        machine.unplug()
        parts = [part for kind in KINDS if (part := self.parts.get(f"{kind}-{number}"))]
        for part in parts:
            self.send(part, signal.SIGKILL)
            part.kill()
        try:
            yield
        finally:
            machine.plug()
            for part in parts:
                part.start()

    @contextmanager
    def cut(self, number: int, addresses: Sequence[str], *, both_ways: bool = True) -> Iterator[None]:
        """Lose what is sent to other machines at *addresses*, and with *both_ways* what they send back, too."""
        machine = self.machines[number]
        machine.lose_to(addresses)
        others = [
            other
            for other in self.machines.values()
            if both_ways and {other.address, other.store_address} & {*addresses}
        ]
        mine = [machine.address if addresses[0].startswith("10.77") else machine.store_address]
        for other in others:
            other.lose_to(mine)
        try:
            yield
        finally:
            machine.send_to(addresses)
            for other in others:
                other.send_to(mine)

    @contextmanager
    def unmounted(self, number: int, *, is_restarted: bool = False, has_copy: bool = False) -> Iterator[None]:
        """Unmount the share on a machine, while Onager runs there, or before it starts again; or mount a copy of it."""
        machine = self.machines[number]
        restarted = [self.part(kind, number) for kind in ("scheduler", "executor")] if is_restarted else []
        for part in restarted:
            self.send(part, signal.SIGKILL)
            part.kill()
        machine.unmount()
        if has_copy:
            copy = self.directory / f"copy-{number}-{time.monotonic_ns()}"
            with suppress(shutil.Error):  # raised at the end, for files that went meanwhile
                shutil.copytree(machine.source, copy)
            machine.mount(copy)
        for part in restarted:
            part.start()
        try:
            yield
        finally:
            if has_copy:
                machine.unmount()
            machine.mount()

    @contextmanager
    def sick(self, number: int, fault: str) -> Iterator[None]:
        """Have the share meet *fault* wherever the scheduler of a machine looks at it; see `sick_share`."""
        self._switch(number).write_text(fault)
        try:
            yield
        finally:
            self._switch(number).write_text("")

    def states(self) -> dict[str, str]:
        """Return the states of executors, as they are shown."""
        with connect(self.addresses()) as client:
            return {executor.executor_id: executor.state for executor in client.executors()}

    def lines(self) -> dict[str, int]:
        """Return how many lines each scheduler has logged."""
        schedulers = (self.part("scheduler", number) for number in self.machines)
        return {part.name: len(part.log.read_text().splitlines()) for part in schedulers}

    def lost_leases(self, since: Mapping[str, int]) -> list[str]:
        """Return the lines of schedulers' logs, after so many, that tell of a lease that was lost."""
        return [
            line
            for name, count in since.items()
            for line in self.parts[name].log.read_text().splitlines()[count:]
            if any(event in line for event in ("scheduler_lease_lost", "executor_lost"))
        ]

    def others(self, number: int, *, of_store: bool = False) -> list[str]:
        """Return the addresses of the other machines."""
        found = [machine for machine in self.machines.values() if machine.number != number]
        return [machine.store_address if of_store else machine.address for machine in found]

    # -- commands

    def _add(self, machine: Machine, kind: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        name = f"{kind}-{machine.number}"
        self.parts[name] = Part(name, machine.inside(command), environment, self.directory, ROOT)

    def _etcd(self, machine: Machine) -> list[str | Path]:
        members = ",".join(f"etcd-{m.number}=http://{m.store_address}:2380" for m in self.machines.values())
        if len(self.machines) < MACHINES:
            members = ",".join(f"etcd-{n}=http://10.78.0.{n}:2380" for n in range(1, MACHINES + 1))
        own = f"http://{machine.store_address}"
        flags = {
            "name": f"etcd-{machine.number}",
            "data-dir": str(machine.disk / "etcd"),
            "listen-client-urls": f"{own}:2379",
            "advertise-client-urls": f"{own}:2379",
            "listen-peer-urls": f"{own}:2380",
            "initial-advertise-peer-urls": f"{own}:2380",
            "initial-cluster": members,
        }
        return [program("etcd"), *(part for name, value in flags.items() for part in (f"--{name}", value))]

    def _switch(self, number: int) -> Path:
        return self.directory / f"switch-{number}"

    def _scheduler(self, machine: Machine) -> list[str | Path]:
        members = ",".join(f"10.78.0.{number}:2379" for number in range(1, MACHINES + 1))
        within: list[str | Path] = []
        if self._can_be_sick:
            switch = self._switch(machine.number)
            switch.write_text("")
            within = [sys.executable, "-m", "tests.machines.sick_share", machine.share, switch]
        return [
            *within,
            *(sys.executable, "-m", "onager", "scheduler", "--backend", f"etcd://{members}/machines"),
            *("--listen", f"{machine.address}:50050", "--health-listen", f"{machine.address}:50051"),
            *("--exchange-dir", machine.share / "exchange", "--insecure"),
        ]

    def _executor(self, machine: Machine) -> list[str | Path]:
        schedulers = ",".join(f"10.77.0.{number}:50050" for number in range(1, MACHINES + 1))
        return [
            *(sys.executable, "-m", "onager", "executor", "--scheduler", schedulers, "--slots", "2"),
            *("--executor-id", f"executor-{machine.number}", "--exchange-dir", machine.share / "exchange"),
            *("--root", machine.share),
            *(flag for name, value in _SMALL_SPARK.items() for flag in ("--spark-conf", f"{name}={value}")),
            "--insecure",
        ]

    def _proxy(self) -> Part:
        addresses = {f"ONAGER_SCHEDULER_{n}": f"{m.address}:50050" for n, m in self.machines.items()}
        health = {f"ONAGER_HEALTH_{n}": "50051" for n in self.machines}
        environment = {"ONAGER_LISTEN": PROXY, **addresses, **health}
        command = [found("haproxy"), "-f", ROOT / "deploy" / "haproxy.cfg"]
        return Part("haproxy", command, environment, self.directory, ROOT)


def _clock(ahead_s: int) -> dict[str, str]:
    """Return the environment of a process whose wall clock is ahead."""
    path = str(Path(__file__).parent / "clock")
    return {"PYTHONPATH": path, "ONAGER_MACHINES_AHEAD_S": str(ahead_s)} if ahead_s else {}


def connect(addresses: str, **options: float) -> onager.OnagerClient:
    """Return a client; the network between the machines is trusted."""
    return onager.connect(addresses, security=onager.ClientSecurity(insecure=True), **options)


def java_home() -> None:
    """Tell executors which Java to use."""
    os.environ.setdefault("JAVA_HOME", (ROOT / ".venv" / "java-home").read_text().strip())
