"""What a job did when and where, derived from its history: attempts of tasks by executor, and what happened to them."""
