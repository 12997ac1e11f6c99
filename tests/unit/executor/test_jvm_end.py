"""How the executor's JVM ended, from its exit code and from what the kernel counts."""

import pytest

from onager.executor.spark.jvm_end import EXIT_OPTION, MemoryKills, described, exit_option


@pytest.mark.parametrize(
    ("code", "was_killed_for_memory", "how", "is_memory"),
    [
        (3, False, "with exit code 3, after an OutOfMemoryError", True),
        (52, False, "with exit code 52, after an OutOfMemoryError", True),
        (-9, False, "by SIGKILL", False),
        (-9, True, "by SIGKILL, because the memory of its control group ran out", True),
        (137, True, "by SIGKILL, because the memory of its control group ran out", True),
        (-6, True, "by SIGABRT", False),
        (1, True, "with exit code 1", False),
        (0, False, "with exit code 0", False),
    ],
)
def test_what_an_exit_code_says(code, was_killed_for_memory, how, is_memory):
    end = described(code, was_killed_for_memory=was_killed_for_memory)
    assert (end.how, end.is_memory) == (how, is_memory)


@pytest.mark.parametrize(
    ("lines", "name", "text"),
    [
        ("0::/pod/one\n", "pod/one/memory.events", "oom 1\noom_kill {}\n"),
        ("0::/\n", "memory.events.local", "oom_kill {}\noom_group_kill 9\n"),
        ("5:cpu:/x\n4:memory:/pod\n0::/x\n", "memory/pod/memory.oom_control", "under_oom 0\noom_kill {}\n"),
    ],
)
def test_kills_of_the_control_group_are_counted_since_the_last_look(tmp_path, lines, name, text):
    (tmp_path / "cgroup").write_text(lines)
    file = tmp_path / "sys" / name
    file.parent.mkdir(parents=True)
    file.write_text(text.format(4))
    kills = MemoryKills(tmp_path, tmp_path / "sys")
    assert not kills.are_more
    file.write_text(text.format(5))
    assert kills.are_more
    kills.look()
    assert not kills.are_more
    file.unlink()
    assert not kills.are_more


def test_where_nothing_is_counted_there_is_no_evidence(tmp_path):
    assert not MemoryKills(tmp_path, tmp_path).are_more
    (tmp_path / "cgroup").write_text("0::/gone\n")
    assert not MemoryKills(tmp_path, tmp_path).are_more


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ("", EXIT_OPTION),
        ("-Xss4m -XX:+HeapDumpOnOutOfMemoryError", EXIT_OPTION),
        ("-XX:-ExitOnOutOfMemoryError", ""),
        ("-Xss4m -XX:+CrashOnOutOfMemoryError", ""),
        ("-XX:OnOutOfMemoryError=/bin/true", ""),
    ],
)
def test_what_was_chosen_for_errors_of_memory_is_kept(given, added):
    assert exit_option(given) == added
