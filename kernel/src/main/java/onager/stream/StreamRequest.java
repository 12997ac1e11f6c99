package onager.stream;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * A reader's request to the hub of another executor: for frames of a bucket, or to drop the bucket.
 *
 * @param task the execution: `job/stage.attempt/partition.attempt`
 * @param buckets how many buckets the reader expects the task to have; 0: any number
 * @param from the number of the first wanted frame; earlier ones have arrived. -1: drop the bucket
 * @param firstRow frames that end before this row of the bucket are skipped, but counted
 * @param mostBytes the size at which the answer is full; it has at least one frame
 * @param drains whether nothing else reads the bucket, so that frames may be dropped once they have arrived
 */
record StreamRequest(String task, int bucket, int buckets, long from, long firstRow, int mostBytes, int waitMs, boolean drains) {
    private static final byte VERSION = 2;

    static StreamRequest close(String task, int bucket) {
        return new StreamRequest(task, bucket, 0, -1L, 0L, 0, 0, true);
    }

    static String taskName(String job, int stage, int stageAttempt, int partition, int taskAttempt) {
        return job + "/" + stage + "." + stageAttempt + "/" + partition + "." + taskAttempt;
    }

    /** Return the job of an execution. */
    static String jobOf(String task) {
        return task.substring(0, task.indexOf('/'));
    }

    boolean isClose() {
        return from < 0L;
    }

    ByteBuffer encode() {
        byte[] name = task.getBytes(StandardCharsets.UTF_8);
        ByteBuffer out = ByteBuffer.allocate(38 + name.length);
        out.put(VERSION).putInt(bucket).putInt(buckets).putLong(from).putLong(firstRow).putInt(mostBytes).putInt(waitMs)
                .put((byte) (drains ? 1 : 0));
        return out.putInt(name.length).put(name).flip();
    }

    static StreamRequest decode(ByteBuffer in) {
        byte version = in.get();
        if (version != VERSION) {
            throw new IllegalArgumentException(
                    "streams of version " + version + " are not supported here: run the same version of Onager on every executor");
        }
        int bucket = in.getInt();
        int buckets = in.getInt();
        long from = in.getLong();
        long firstRow = in.getLong();
        int mostBytes = in.getInt();
        int waitMs = in.getInt();
        boolean drains = in.get() == 1;
        var name = new byte[in.getInt()];
        in.get(name);
        return new StreamRequest(new String(name, StandardCharsets.UTF_8), bucket, buckets, from, firstRow, mostBytes, waitMs, drains);
    }
}
