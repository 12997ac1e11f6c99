"""Run the command line as ``python -m onager``."""

from onager.cli import main

if __name__ == "__main__":
    main()
