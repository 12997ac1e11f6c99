"""The process of a program of PySpark whose calls are recorded: it goes on where an earlier attempt has ended.

It imports nothing else of Onager: the program's Python may be another one.

- `tasks`: the threads, calls of pools and coroutines of the program, which name its calls;
- `stub`: PySpark's calls, named, and asked until there is an outcome;
- `once`: what else is recorded: the outcome of a function of the program;
- `changes`: what is changed in PySpark, in memory;
- `__main__`: the process.
"""
