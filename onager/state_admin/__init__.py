"""Administration of a store: look, watch, remove, check, back up, restore.

`admin.StateAdmin` does it over any `StateBackendClient`, for the scheduler's service and for a command line that opens
the store itself; both use the protocol's messages. Nothing is imported here, so that a command loads only its own part.
"""
