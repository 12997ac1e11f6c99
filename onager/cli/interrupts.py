"""What Ctrl-C does to a command that waits for something of the cluster, which goes on without it."""

import sys


def wish(what: str, other: str) -> str:
    """Return what the user wants of *what* when interrupted: ``c`` cancels it, ``d`` lets it run, else *other*.

    Without a terminal nobody is asked: it runs on.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "d"
    question = f"\n{what}: (c)ancel it, (d)etach and let it run, or press enter to {other}? "
    print(question, end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline().strip().lower()[:1]
    except KeyboardInterrupt:
        return "d"
