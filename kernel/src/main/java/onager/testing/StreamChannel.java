package onager.testing;

import java.util.ArrayDeque;
import java.util.ArrayList;
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
    private final List<StreamLink> links; // of the producing stage
    private final ArrayDeque<StreamFrame> frames = new ArrayDeque<>();
    private long first = 0; // number of the oldest frame kept
    private long bytes = 0;
    private int granted = 0; // as many frames are taken even beyond the capacity
    private final List<Cursor> cursors = new ArrayList<>();
    private boolean hasFinished = false;
    private long rows = 0;

    StreamChannel(StreamTask producer, int bucket, int capacityFrames, long capacityBytes, List<StreamLink> links) {
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
        StreamFrame take(List<StreamFrame> gone) {
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

        void close(List<StreamFrame> gone) {
            isClosed = true;
            forget(gone);
        }
    }

    private StreamFrame get(int index) {
        return index == 0 ? frames.peekFirst() : frames.stream().skip(index).findFirst().orElseThrow();
    }

    Cursor cursor(StreamTask reader) {
        Cursor made = new Cursor(reader);
        cursors.add(made);
        return made;
    }

    /** Whether a task reads it, or may yet. */
    boolean isWanted() {
        return isUndecided() || !cursors.stream().allMatch(Cursor::isClosed);
    }

    private boolean isUndecided() {
        return !links.stream().allMatch(link -> link.undecided.isEmpty());
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
    void forget(List<StreamFrame> gone) {
        if (isUndecided()) {
            return;
        }
        dropBefore(cursors.stream().filter(c -> !c.isClosed).mapToLong(c -> c.at).min().orElse(Long.MAX_VALUE), gone);
    }

    /** Let go of all frames, into *gone*, whoever might want them. */
    void drop(List<StreamFrame> gone) {
        dropBefore(Long.MAX_VALUE, gone);
    }

    private void dropBefore(long least, List<StreamFrame> gone) {
        while (first < least && !frames.isEmpty()) {
            StreamFrame frame = frames.removeFirst();
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

    /** The tasks that keep the oldest frame here. */
    List<StreamTask> laggards() {
        var tasks = new ArrayList<StreamTask>();
        links.forEach(link -> tasks.addAll(link.undecided));
        cursors.stream().filter(c -> !c.isClosed && c.at == first).forEach(c -> tasks.add(c.reader));
        return tasks;
    }

    /** Everybody who reads here. */
    List<StreamTask> readers() {
        return cursors.stream().filter(c -> !c.isClosed).map(c -> c.reader).toList();
    }

    @Override
    public String toString() {
        return "bucket " + bucket + " of " + producer;
    }
}
