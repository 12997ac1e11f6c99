"""What a job changes in the catalog, from the blobs that its graph names."""

from onager.errors import NotFoundError, SinkError, StateCorruptError, VersionMismatchError
from onager.execution_graph import ExecutionGraph, JobState, StageWork
from onager.ids import BlobDigest
from onager.manifests import Manifest
from onager.protocol.apart import apart
from onager.scheduler.catalog.changes import CatalogChanges, decoded, with_written
from onager.scheduler.jobs.blobs import BlobStore


async def changes_of(graph: ExecutionGraph, blobs: BlobStore) -> CatalogChanges | None:
    """Return what the job that ends with *graph* changes in the catalog.

    `StateCorruptError` when that is not there, or is damaged.
    """
    if graph.plan is None or not graph.plan.catalog_digest or graph.state is not JobState.SUCCESSFUL:
        return None
    content = await _blob(blobs, graph.plan.catalog_digest)
    changes = await apart(len(content), decoded, content)
    if not changes.awaits_rows:
        return changes
    content = await _blob(blobs, _manifest_of(graph))
    try:
        manifest = await apart(len(content), Manifest.from_bytes, content)
    except (SinkError, VersionMismatchError, ValueError, KeyError, TypeError) as error:
        raise StateCorruptError(f"what the job has published cannot be read: {error!r}") from error
    return with_written(changes, manifest.table)


async def _blob(blobs: BlobStore, digest: str) -> bytes:
    try:
        return await blobs.get(BlobDigest(digest))
    except NotFoundError as error:
        raise StateCorruptError(f"what the job changes in the catalog is not there: {error}") from error


def _manifest_of(graph: ExecutionGraph) -> str:
    for stage in graph.stages:
        if stage.spec.work is StageWork.PUBLISH_PLAN and (output := stage.ledger.outputs.get(0)) is not None:
            return output.payload_digest or ""
    return ""
