"""The command line: ``onager``, or ``python -m onager``."""

from onager.private_process import hide_process

__all__ = ["main"]


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    # Before the imports, which take a while: until then, others of this user can read the environment.
    hide_process()
    from onager.cli.app import main as run

    run()
