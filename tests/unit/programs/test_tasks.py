"""Names of calls: the same in each run of a program, whichever thread comes first."""

import subprocess
import sys
import textwrap

import pytest

from tests.support.waiting import HANGS_S

BEGIN = """
import asyncio, concurrent.futures, multiprocessing.pool, random, sys, threading, time
from onager.programs.tasks import CURRENT, Task, current, follow_tasks

CURRENT.set(Task("0", "seed"))
follow_tasks()
sys.setswitchinterval(1e-6)
names = []

def call(what):
    time.sleep(random.SystemRandom().random() / 500)
    for _ in range(2):
        names.append((what, current().call(), str(current().uuid4()), current().plan_id()))
"""
PROGRAMS = {
    "threads": """
        threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
        for thread in threads: thread.start()
        call("main")
        for thread in threads: thread.join()
    """,
    "a thread of a thread": """
        def outer(n):
            inner = threading.Thread(target=call, args=(f"inner {n}",))
            inner.start()
            call(f"outer {n}")
            inner.join()
        threads = [threading.Thread(target=outer, args=(n,)) for n in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """,
    "a class of threads": """
        class Mine(threading.Thread):
            def run(self): call(self.name)
        threads = [Mine(name=f"mine {n}") for n in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """,
    "submit": """
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for n in range(12): pool.submit(call, n)
            call("main")
    """,
    "map": """
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(call, range(12)))
    """,
    "a pool's map": """
        with multiprocessing.pool.ThreadPool(3) as pool:
            pool.map(call, range(12), chunksize=2)
            pool.starmap(call, [(f"star {n}",) for n in range(5)])
            list(pool.imap_unordered(call, range(12, 18)))
            list(pool.imap(call, range(18, 24)))
            pool.apply(call, (24,))
            call("main")
    """,
    "callbacks": """
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for n in range(6):
                pool.submit(call, n).add_done_callback(lambda _, n=n: call(f"callback of {n}"))
            call("main")
        done = concurrent.futures.Future()
        done.set_result(1)
        done.add_done_callback(lambda _: call("callback of one that is done"))
        call("main after it")
    """,
    "a pool's callbacks": """
        with multiprocessing.pool.ThreadPool(3) as pool:
            for n in range(4):
                pool.apply_async(call, (n,), callback=lambda _, n=n: call(f"callback of {n}"))
                pool.apply_async(int, ("x",), error_callback=lambda _, n=n: call(f"callback of error {n}"))
            pool.map_async(call, range(4, 8), callback=lambda _: call("callback of all")).wait()
            call("main")
            pool.close()
            pool.join()
    """,
    "initializers": """
        both = threading.Barrier(2)
        def begin(what):
            both.wait(60)
            call(what)
        with concurrent.futures.ThreadPoolExecutor(2, initializer=begin, initargs=("executor",)) as pool:
            list(pool.map(call, range(4)))
        with multiprocessing.pool.ThreadPool(2, begin, ("pool",)) as pool:
            pool.map(call, range(4, 8))
            pool.close()
            pool.join()
    """,
    "asyncio": """
        async def one(n):
            await asyncio.sleep(random.SystemRandom().random() / 500)
            call(f"coroutine {n}")
            await asyncio.to_thread(call, f"thread of {n}")
            await asyncio.get_running_loop().run_in_executor(None, call, f"executor of {n}")
        async def main():
            await asyncio.gather(*(one(n) for n in range(6)))
        asyncio.run(main())
    """,
}


def run(program):
    code = BEGIN + textwrap.dedent(program) + "\nfor name in sorted(names, key=str): print(*name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_run_gives_the_same_names(name):
    runs = [run(PROGRAMS[name]) for _ in range(4)]
    assert all(each == runs[0] for each in runs)
    calls = [line.split()[-3] for line in runs[0]]
    assert len(set(calls)) == len(calls), "no two calls have one name"
    assert len({line.split()[-1] for line in runs[0]}) == len(calls), "no two plans have one id"


def test_a_thread_of_unknown_origin_and_a_forked_process_have_no_name():
    lines = run("""
        import _thread, os
        def unknown():
            try: current()
            except RuntimeError as error: names.append(str(error))
        _thread.start_new_thread(unknown, ())
        while not names: time.sleep(0.01)
        if not (child := os.fork()):
            try: current()
            except RuntimeError as error: os._exit(7 if "forked" in str(error) else 1)
        names.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        names[:] = [("unknown", "was not started by threading" in names[0]), ("forked", names[1])]
    """)
    assert lines == ["forked 7", "unknown True"]
