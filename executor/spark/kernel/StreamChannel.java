package onager.kernel;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * What one task of a stage gives for one bucket, on its way to every task that reads it. Frames are kept until the last of
 * these has taken them. All of it is guarded by the exchange's lock.
 */
final class StreamChannel {
    final StreamTask producer;
    final int bucket;
    private final int capacityFrames;
    private final long capacityBytes;
    private final List links; // of the producing stage
    private final ArrayDeque frames = new ArrayDeque();
    private long first = 0; // number of the oldest frame kept
    private long bytes = 0;
    private int granted = 0; // as many frames are taken even beyond the capacity
    private final List cursors = new ArrayList();
    private boolean hasFinished = false;
    private long rows = 0;

    StreamChannel(StreamTask producer, int bucket, int capacityFrames, long capacityBytes, List links) {
        this.producer = producer;
        this.bucket = bucket;
        this.capacityFrames = capacityFrames;
        this.capacityBytes = capacityBytes;
        this.links = links;
    }

    /** Where a reader is in the channel. */
    final class Cursor {
        final StreamTask reader;
        private long at = 0;
        private long rows = 0;
        private boolean isClosed = false;
        /** Whether a source has it. */
        boolean isUsed = false;

        Cursor(StreamTask reader) {
            this.reader = reader;
        }

        boolean isAtEnd() {
            return at == first + frames.size();
        }

        boolean isClosed() {
            return isClosed;
        }

        StreamChannel channel() {
            return StreamChannel.this;
        }

        /** Take the next frame; return it, and let those no longer needed go into *gone*. */
        StreamFrame take(List gone) {
            StreamFrame frame = get((int) (at - first));
            at++;
            rows += frame.rows;
            forget(gone);
            return frame;
        }

        /** Say why what was read is not all that the producer gave, or null when it is. */
        String complaint() {
            return rows == StreamChannel.this.rows ? null
                    : producer + " gave " + StreamChannel.this.rows + " rows for bucket " + bucket + ", but " + rows + " of them came";
        }

        void close(List gone) {
            isClosed = true;
            forget(gone);
        }
    }

    private StreamFrame get(int index) {
        if (index == 0) {
            return (StreamFrame) frames.peekFirst();
        }
        Iterator each = frames.iterator();
        for (int i = 0; i < index; i++) {
            each.next();
        }
        return (StreamFrame) each.next();
    }

    Cursor cursor(StreamTask reader) {
        Cursor made = new Cursor(reader);
        cursors.add(made);
        return made;
    }

    /** Whether a task reads it, or may yet. */
    boolean isWanted() {
        return isUndecided() || open() > 0;
    }

    private boolean isUndecided() {
        for (int i = 0; i < links.size(); i++) {
            if (!((StreamLink) links.get(i)).undecided.isEmpty()) {
                return true;
            }
        }
        return false;
    }

    private int open() {
        int n = 0;
        for (int i = 0; i < cursors.size(); i++) {
            n += ((Cursor) cursors.get(i)).isClosed ? 0 : 1;
        }
        return n;
    }

    /** Whether several tasks read the same frames, or may yet. */
    boolean isShared() {
        return isUndecided() || cursors.size() > 1;
    }

    boolean isFull() {
        return (frames.size() >= capacityFrames || bytes >= capacityBytes) && frames.size() >= Math.max(granted, 1);
    }

    /** Let one frame more in than there is room for. */
    void grant() {
        granted = frames.size() + 1;
    }

    long heldBytes() {
        return bytes;
    }

    void add(StreamFrame frame) {
        frames.addLast(frame);
        bytes += frame.size;
    }

    /** Let go of the frames that everybody has taken, into *gone*; of all when nobody reads. */
    void forget(List gone) {
        if (isUndecided()) {
            return;
        }
        long least = Long.MAX_VALUE;
        for (int i = 0; i < cursors.size(); i++) {
            Cursor c = (Cursor) cursors.get(i);
            least = c.isClosed ? least : Math.min(least, c.at);
        }
        dropBefore(least, gone);
    }

    /** Let go of all frames, into *gone*, whoever might want them. */
    void drop(List gone) {
        dropBefore(Long.MAX_VALUE, gone);
    }

    private void dropBefore(long least, List gone) {
        while (first < least && !frames.isEmpty()) {
            StreamFrame frame = (StreamFrame) frames.removeFirst();
            first++;
            bytes -= frame.size;
            gone.add(frame);
        }
    }

    void finish(long given) {
        hasFinished = true;
        rows = given;
    }

    /** Whether the writer has said that nothing more comes. */
    boolean hasFinished() {
        return hasFinished;
    }

    /** Add the tasks that keep the oldest frame here. */
    void addLaggards(List tasks) {
        for (int i = 0; i < links.size(); i++) {
            tasks.addAll(((StreamLink) links.get(i)).undecided);
        }
        for (int i = 0; i < cursors.size(); i++) {
            Cursor c = (Cursor) cursors.get(i);
            if (!c.isClosed && c.at == first) {
                tasks.add(c.reader);
            }
        }
    }

    /** Add everybody who reads here. */
    void addReaders(List tasks) {
        for (int i = 0; i < cursors.size(); i++) {
            Cursor c = (Cursor) cursors.get(i);
            if (!c.isClosed) {
                tasks.add(c.reader);
            }
        }
    }

    public String toString() {
        return "bucket " + bucket + " of " + producer;
    }
}
