"""The notebook is executed, and what runs its long cell is killed in the middle of it."""

import re
from typing import Any

import pytest
from cluster import Cluster, until

import onager

from .conftest import Execution

NUMBERS = range(1, 5_000_000)
TASKS = 32


def all_steps() -> list[int]:
    """Return what `steps` of the notebook gives for each of the numbers; a smaller one is known."""
    known = [0] * NUMBERS.stop
    for number in NUMBERS[1:]:
        n, taken = number, 0
        while n >= number:
            n, taken = (n // 2, taken + 1) if n % 2 == 0 else ((3 * n + 1) // 2, taken + 2)
        known[number] = known[n] + taken
    return known


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, int, int, set[int]]]:
    """Digits, how many numbers, the most steps, and which numbers take them."""
    known = all_steps()
    assert (known[27], known[97], known[837_799]) == (111, 118, 524)
    rows = []
    for digits in range(1, 8):
        numbers = range(10 ** (digits - 1), min(10**digits, NUMBERS.stop))
        most = max(known[number] for number in numbers)
        rows.append((digits, len(numbers), most, {number for number in numbers if known[number] == most}))
    return rows


def printed(outputs: list[dict[str, Any]]) -> str:
    """Return what a cell printed."""
    return "".join("".join(output.get("text", "")) for output in outputs)


def value(outputs: list[dict[str, Any]], mime_type: str = "text/plain") -> str:
    """Return the value of a cell's last line, as Jupyter shows it."""
    return "".join(next(output["data"][mime_type] for output in outputs if "data" in output))


def table(outputs: list[dict[str, Any]]) -> list[list[int]]:
    """Return the rows that a cell shows as HTML."""
    html = value(outputs, "text/html")
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)]
    return [[int(value) for value in row] for row in rows]


def await_middle(client: onager.OnagerClient, execution: Execution) -> str:
    """Return the id of the job of the long cell once some of its tasks are done, and many are not."""

    def found() -> str | None:
        assert execution.is_running, execution.outputs()
        for job in client.jobs(state="running"):
            stages = client.job(job.job_id).progress().stages
            if any(stage.partitions == TASKS and 3 <= stage.successful <= TASKS // 2 for stage in stages):
                return job.job_id
        return None

    return until(found, "the middle of the long cell", 300.0)


@pytest.mark.parametrize("victim", ["scheduler", "executor"])
def test_a_cell_does_not_notice_what_is_killed(
    cluster: Cluster,
    client: onager.OnagerClient,
    execution: Execution,
    expected: list[tuple[int, int, int, set[int]]],
    victim: str,
) -> None:
    job_id = await_middle(client, execution)
    killed = cluster.child(victim)
    killed.kill()
    outputs = execution.outputs()

    assert f"kill -9 {killed.pid}    # the {victim}\n" in printed(outputs["processes"])
    assert f"the {victim} was killed by SIGKILL; restarting it" in cluster.output()
    rows = table(outputs["query"])
    assert [row[:3] for row in rows] == [list(row[:3]) for row in expected]
    assert all(row[3] in numbers for row, (*_, numbers) in zip(rows, expected, strict=True))
    # The view, the setting and the function of the session that was there before.
    assert value(outputs["afterwards"]) == "(['numbers'], '0', 111)"

    stage = next(stage for stage in client.job(job_id).detail().progress.stages if stage.partitions == TASKS)
    assert [task.successes for task in stage.tasks] == [1] * TASKS
