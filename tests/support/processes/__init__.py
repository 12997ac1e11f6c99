"""Real processes for tests: clusters, children, and what stands between them."""
