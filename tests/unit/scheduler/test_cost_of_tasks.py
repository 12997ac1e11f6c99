"""What each task costs a scheduler, counted in calls of our functions: these are the same on any machine.

What a function itself does is not counted: benchmarks.orchestration measures that.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

import onager
from tests.unit.scheduler.pair import HERE, FakeContext, job_of, register, reported

OURS = tuple(f"{Path(onager.__file__).parents[1]}/{name}/" for name in ("execution_graph", "onager", "scheduler"))
MAX_CALLS = 29.5
"""For the report of a task that was successful: one more for each task fails here, and has to be worth it."""


@pytest.fixture
def counted():
    """Return calls of our functions, by name, for as long as the test goes on."""
    found = Counter()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found[frame.f_code.co_qualname] += 1

    found.begin = lambda: sys.setprofile(note)
    yield found
    sys.setprofile(None)


async def test_the_report_of_a_task_costs_few_calls(pair, counted):
    await register(pair)
    totals = []
    for number, tasks in enumerate((200, 700)):
        await pair.run_job(job_of(HERE, number), tasks)
        request = reported(await pair.fill(tasks)).SerializeToString()
        counted.clear()
        counted.begin()
        answer = await pair.here.gateway.ReportTasks(request, FakeContext())
        sys.setprofile(None)
        assert len(answer.acknowledged) == tasks
        totals.append(counted.copy())
    each = {name: (calls - totals[0][name]) / 500 for name, calls in totals[1].items()}
    most = sorted(each.items(), key=lambda item: -item[1])[:30]
    assert sum(each.values()) <= MAX_CALLS, most
