"""The cost of the port beside the raw drivers: ``python -m benchmarks.state --backends leveldb,etcd --json FILE``.

Each operation is done by 1, 8 and 64 callers through `StateBackendClient`, and the same work with the driver that the
adapter stands on, against the same kind of store on the same disk with the same durability. A cell's rounds alternate
between the two (A B B A …), so that a machine that slows down slows down both.

| operation | what one caller does, again and again |
|---|---|
| ``put`` | sets one of its own keys |
| ``fenced_txn`` | a put that expects the revision of a header, and carries the token of a lock that the caller holds |
| ``batch_100`` | 100 puts in one transaction |
| ``scan_1000`` | the next page of 1,000 of 10,000 keys, with values |
| ``watch`` | sets a key, and waits for the event of that on its own watch |

Values have 256 bytes. The raw sides are what their users would write (`raw_etcd`, `raw_leveldb`).
"""

from typing import Final

OPERATIONS: Final = ("put", "fenced_txn", "batch_100", "scan_1000", "watch")
CALLERS: Final = (1, 8, 64)
VALUE: Final = bytes(range(256))
BATCH: Final = 100
PAGE: Final = 1_000
SCANNED: Final = 10_000
OWN_KEYS: Final = 256
"""How many keys a caller sets in turn: stores with few keys that are set often, as a cluster's are."""
