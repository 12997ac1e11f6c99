"""The agent: takes work from schedulers into its hands, has it done, and reports; without Spark."""
