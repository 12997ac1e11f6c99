"""The Python client: connections, job handles, results."""
