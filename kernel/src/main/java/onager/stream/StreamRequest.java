package onager.stream;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * What a reader asks of the hub of another executor: frames of a bucket from a place on, or that the bucket be dropped.
 *
 * @param task the execution: `job/stage.attempt/partition.attempt`
 * @param buckets how many buckets the task has, as the reader believes; 0: it does not matter
 * @param from the number of the first frame that is wanted; those before have come. -1: no more is wanted at all
 * @param firstRow frames whose rows all come before this one of the bucket are not wanted, but counted
 * @param mostBytes after so many bytes the answer is full; a frame comes in any case
 * @param drains whether nobody else reads the bucket, so that what has come may go
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
                    "streams of version " + version + " are not known here: run the same version of Onager on every executor");
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
