"""Jobs: their logs and snapshots in the store, what is submitted and reported, results, and what is told of them."""
