"""The schedulers of a cluster: their registrations, which of them drives a job, and forwarding to it."""
