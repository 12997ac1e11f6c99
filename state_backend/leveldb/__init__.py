"""The LevelDB adapter: the store of one scheduler process.

`backend` is the port over a thread that owns the database, `directory` opens and checks the state directory, `log`
finds damage that LevelDB itself ignores.
"""

from onager.state_backend.leveldb.backend import LevelDBBackend
