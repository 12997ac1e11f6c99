package onager.run;

import java.util.Map;

/** Facts about a written partition. */
final class Written {
    long rows = 0;
    long bytes = 0;
    /** Of an exchange: the bytes before compression. */
    long plainBytes = 0;
    String[] files = new String[0];
    /** Milliseconds from the last row to the output under its final name. */
    long commitMs = 0;
    /** The result if it is not in a file. */
    byte[] inline = null;
    /** A byte for each bucket, see Spark's `MapStatus.compressSize`; empty: not reported. */
    byte[] bucketSizes = {};
    /** The checksum that seals a result. */
    String checksum = "";

    /** Set how long the commit took that began at *begunNs*, by `System.nanoTime`. */
    void committedSince(long begunNs) {
        commitMs = (System.nanoTime() - begunNs) / 1_000_000L;
    }

    void into(Map<String, Object> fields) {
        fields.put("rows", rows);
        fields.put("bytes", bytes);
        fields.put("plain_bytes", plainBytes);
        fields.put("files", files);
        fields.put("commit_ms", commitMs);
        fields.put("inline", inline != null);
        fields.put("checksum", checksum);
        fields.put("bucket_sizes", bucketSizes);
    }
}
