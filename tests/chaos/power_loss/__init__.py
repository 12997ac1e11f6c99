"""Loss of power: datasets, tables, results and checkpoints on a disk that forgets what was not synced."""
