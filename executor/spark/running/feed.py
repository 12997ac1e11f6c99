"""A task of a feed: finds more of what a growing stage reads, after the last portion that is known."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.leaves import LeafTools
from onager.executor.spark.place_checks import NoteRead
from onager.executor.spark.plan_codec import decode, digest
from onager.executor.spark.running.binder import Binder
from onager.ids import BlobDigest, new_nonce
from onager.protocol import onager_pb2 as pb


def find_more(
    task_set: pb.TaskSet,
    blobs: Mapping[BlobDigest, bytes],
    jvm: Jvm,
    binder: Binder,
    executor_id: str,
    on_read: NoteRead,
) -> pb.TaskSuccess:
    """Return the portion that comes after the one that *task_set* names; *on_read* gets the paths that are listed."""
    source = decode(blobs[BlobDigest(task_set.plan_digest)])
    on_read(LeafTools(jvm).feed_roots(source.fragment))
    before = blobs[BlobDigest(task_set.portion.digest)]
    with tempfile.TemporaryDirectory(prefix="onager-feed-") as scratch:
        target = Path(scratch) / "portion"
        session = binder.session(source.conf)
        partitions, files, ended = LeafTools(jvm).next_portion(session, source.fragment, before, target)
        content = target.read_bytes()
    name = digest(content)
    output = pb.TaskOutput(
        nonce=new_nonce(), executor_id=executor_id, shared=True, rows=files, bytes=len(content), payload_digest=name
    )
    return pb.TaskSuccess(
        output=output,
        blobs=[pb.Blob(digest=name, content=content)],
        feed=pb.FeedOutcome(added=partitions, ended=ended),
    )
