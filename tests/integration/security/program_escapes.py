"""Ways in which a program that the cluster runs looks for secrets; prints what each has shown, as JSON."""

import ctypes
import json
import os
import re
import socket
import sys
import time
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

WORD = re.compile(rb"planted[0-9a-f]{32}\w*")
_MOST_BYTES = 64 << 20
_DUMPABLE = 4


def content(path: str | Path) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(_MOST_BYTES)


def memory(pid: int | str) -> bytes:
    """Return the words in the memory of a process."""
    found = []
    with Path(f"/proc/{pid}/mem").open("rb") as file:
        for line in content(f"/proc/{pid}/maps").decode().splitlines():
            where, rights, *_ = line.split()
            begin, end = (int(each, 16) for each in where.split("-"))
            if rights.startswith("rw") and end - begin <= _MOST_BYTES:
                try:
                    file.seek(begin)
                    found += WORD.findall(file.read(end - begin))
                except OSError:
                    continue
    return b" ".join(found)


def own_memory() -> bytes:
    libc = ctypes.CDLL(None)
    libc.prctl(_DUMPABLE, 1, 0, 0, 0)  # it may make itself readable, to others as well
    try:
        return memory("self")
    finally:
        libc.prctl(_DUMPABLE, 0, 0, 0, 0)


def descriptors() -> bytes:
    """Return what the open files of the process have in them; of others, what they are."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            name = each.readlink()
            found.append(str(name).encode())
            if name.is_file():
                found.append(content(name))
        except OSError:
            continue
    return b" ".join(found)


def environments() -> bytes:
    """Return the environment of each process that is Onager's, where it can be read."""
    found = []
    for process in psutil.process_iter():
        try:
            if "onager" in " ".join(process.cmdline()):
                found.append(content(f"/proc/{process.pid}/environ"))
        except (OSError, psutil.Error):
            continue
    return b" ".join(found)


def sent_by_host() -> bytes:
    """Return what waits in the sockets that the process has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            if str(each.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(each.name))) as mine:
                    found.append(mine.recv(_MOST_BYTES, socket.MSG_DONTWAIT | socket.MSG_PEEK))
        except OSError:
            continue
    return b" ".join(found)


def main() -> None:
    names, word = json.loads(sys.argv[1]), sys.argv[2]
    spark = SparkSession.builder.getOrCreate()
    spark.range(1).collect()
    ways = {
        "its environment": lambda: content("/proc/self/environ") + json.dumps(dict(os.environ)).encode(),
        "its arguments": lambda: content("/proc/self/cmdline"),
        "its descriptors": descriptors,
        "what is sent to it": sent_by_host,
        "its memory": own_memory,
        "all environments": environments,
        "a setting": lambda: str(spark.conf.getAll).encode(),
    }
    for whose in ("scheduler", "agent", "host"):
        for what in ("environ", "maps", "mem"):
            ways[f"{what} of the {whose}"] = lambda path=f"/proc/{names[whose]}/{what}": content(path)
        ways[f"memory of the {whose}"] = lambda pid=names[whose]: memory(pid)
    found = {}
    for name, way in ways.items():
        try:
            found[name] = "gave " + b" ".join(WORD.findall(way())).decode()
        except OSError as error:
            found[name] = f"raised {error}"
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    sys.stdout.write(f"pid {os.getpid()} socket {Path.cwd().parent / 's'}\n")
    sys.stdout.flush()
    while not Path(word).exists():
        spark.range(1).collect()
        time.sleep(0.1)


if __name__ == "__main__":
    main()
