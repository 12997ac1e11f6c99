"""The agent: takes work from schedulers, has it run, and reports; without Spark."""
