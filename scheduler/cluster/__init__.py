"""The schedulers of a cluster: who they are, which of them drives a job, and how they hand over what concerns it."""
