"""A script of SQL that a client of Spark Connect waits for, while whatever runs it is killed again and again."""

from tests.e2e.test_scripts import cluster, killed_again_and_again

__all__ = ["cluster"]
KILLED = ["executor" if number % 10 == 9 else "scheduler" if number % 3 == 2 else "program" for number in range(50)]


def test_a_script_is_killed_fifty_times(cluster):
    killed_again_and_again(cluster, 150, KILLED)
