package onager.testing;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.Condition;

/** One task as the streaming exchange knows it. All of it is guarded by the exchange's lock. */
final class StreamTask {
    final int stage;
    final int partition;
    /** Signalled when something that the task may wait for has changed. */
    final Condition changed;
    /** Waits of the task's threads that have not ended. */
    final List<Wait> waits = new ArrayList<>();
    /** Where the task is in the channels that it reads. */
    final List<StreamChannel.Cursor> cursors = new ArrayList<>();

    StreamTask(int stage, int partition, Condition changed) {
        this.stage = stage;
        this.partition = partition;
        this.changed = changed;
    }

    @Override
    public String toString() {
        return "task " + partition + " of stage " + stage;
    }

    /**
     * A thread of a task that waits until a channel has room (a writer), or has something to read.
     *
     * @param cursor the reader's place; null for the writer
     */
    record Wait(StreamTask task, StreamChannel channel, StreamChannel.Cursor cursor) {
        /** Whether there is still something to wait for. */
        boolean isOn() {
            return cursor == null ? channel.isWanted() && channel.isFull() : cursor.isAtEnd() && !channel.hasFinished();
        }

        /** The tasks that it waits for: of a reader one, of a writer all that have not taken the oldest frame. */
        List<StreamTask> waitsFor() {
            return cursor != null ? List.of(channel.producer) : channel.laggards();
        }

        @Override
        public String toString() {
            return task + (cursor == null ? " waits for room in " : " waits for rows of ") + channel;
        }
    }
}
