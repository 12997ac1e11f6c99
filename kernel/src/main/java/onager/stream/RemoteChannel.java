package onager.stream;

import java.util.ArrayDeque;
import onager.rows.PackedFrame;

/** A reader's state of one execution's bucket; guarded by its source. */
final class RemoteChannel {
    final String address;
    final String task;
    final int bucket;
    /** The first wanted row of the bucket. */
    final long firstRow;
    final ArrayDeque<PackedFrame> frames = new ArrayDeque<>();
    /** The number of the frame to ask for next. */
    long next = 0;
    long rows = 0;
    boolean isAsking = false;
    boolean isEnded = false;
    /** Since when the executor cannot be reached, or does not have the task; 0: it has. */
    long lostNs = 0;
    long absentNs = 0;
    /** The earliest time of the next request. */
    long notBeforeNs = 0;

    RemoteChannel(String address, String task, int bucket, long firstRow) {
        this.address = address;
        this.task = task;
        this.bucket = bucket;
        this.firstRow = firstRow;
    }

    /** Whether all its frames have been returned. */
    boolean isDone() {
        return isEnded && frames.isEmpty();
    }

    @Override
    public String toString() {
        return "bucket " + bucket + " of task " + task + " at " + address;
    }
}
