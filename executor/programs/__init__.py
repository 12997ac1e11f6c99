"""Runs programs of PySpark, each in a process of its own, in an executor of its own that holds no Spark.

An executor starts it beside itself. So the end of a JVM touches no program, and a program no JVM. A program is a task
like any other: its slots, its loss, its cancellation and its reports are the agent's.

- `beside`: starts this process from an executor, and keeps it running;
- `__main__`: the process;
- `worker`: takes tasks from the agent;
- `attempt`: one attempt of one program, from its begin to its report;
- `folder`: the files of an attempt;
- `relay`: passes the program's calls on to a scheduler that answers.
"""
