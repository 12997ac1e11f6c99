"""Scripts of SQL with control flow (BEGIN … END) as programs: each statement is a call that is recorded.

- `tree`: what the executors' parser says of a script;
- `scopes`: where a script is: frames, blocks, variables, cursors, handlers;
- `interpreter`: walks the tree, without I/O;
- `values`: rows in Arrow;
- `calls`: what is asked for, as calls of Spark Connect;
- `scripts`: `run_script`;
- `arguments`: what the command line says;
- `__main__`: the program of ``onager run --local script.sql``.
"""
