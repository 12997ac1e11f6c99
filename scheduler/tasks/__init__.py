"""Tasks: which of them goes to which slot, and what drives a job and a stage from their beginning to their end."""
