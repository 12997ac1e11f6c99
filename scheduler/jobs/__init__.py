"""Jobs: logs and snapshots in the store, submissions, results, and watchers."""
