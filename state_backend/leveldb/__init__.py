"""The LevelDB adapter: the store of one scheduler process.

`backend` is the port over a thread that owns the database, `directory` says who may open it and whether it is whole,
`log` finds damage that LevelDB itself forgives.
"""

from onager.state_backend.leveldb.backend import LevelDBBackend

__all__ = ["LevelDBBackend"]
