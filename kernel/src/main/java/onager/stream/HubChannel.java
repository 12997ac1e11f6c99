package onager.stream;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import onager.rows.PackedFrame;

/** The frames of one execution for one bucket, until they are read; guarded by the hub's lock. */
final class HubChannel {
    private final ArrayDeque<PackedFrame> frames = new ArrayDeque<>();
    private long first = 0; // the number of the oldest kept frame
    private long rowsBefore = 0; // the number of rows in dropped frames
    /** The size of its frames in memory, in bytes. */
    long held = 0;
    /** When a reader last asked; 0: never. */
    long askedNs = 0;
    /** Whether a reader has asked that does not drain the bucket. */
    boolean isKept = false;
    /** Whether nobody reads it any more. */
    boolean isClosed = false;

    void add(PackedFrame frame) {
        frames.addLast(frame);
        held += frame.held();
    }

    /** Drop the frames before number *from*; return how many bytes of memory that frees. */
    long drop(long from) {
        long before = held;
        while (first < from && !frames.isEmpty()) {
            PackedFrame frame = frames.removeFirst();
            held -= frame.held();
            rowsBefore += frame.rows();
            first++;
        }
        return before - held;
    }

    /** Close the channel, since nobody reads it any more; return how many bytes of memory that frees. */
    long close() {
        isClosed = true;
        return drop(Long.MAX_VALUE);
    }

    boolean has(long number) {
        return number >= first;
    }

    /** Consecutive frames, and the number of frames skipped before them. */
    static final class Found {
        final List<PackedFrame> frames = new ArrayList<>();
        int skippedFrames = 0;
        long skippedRows = 0;

        /** Return the number of frames, including skipped ones. */
        int count() {
            return skippedFrames + frames.size();
        }
    }

    /**
     * Return frames from number *from* on, up to *mostBytes* but at least one if there is one; frames that end before row *firstRow* are
     * skipped.
     */
    Found get(long from, long firstRow, int mostBytes) {
        var found = new Found();
        long number = first;
        long row = rowsBefore;
        int bytes = 0;
        for (PackedFrame frame : frames) {
            if (!found.frames.isEmpty() && bytes >= mostBytes) {
                break;
            }
            row += frame.rows();
            if (number++ < from) {
                continue;
            }
            if (row <= firstRow) {
                found.skippedFrames++;
                found.skippedRows += frame.rows();
            } else {
                found.frames.add(frame);
                bytes += frame.stored();
            }
        }
        return found;
    }

    /** Return the number of the next frame. */
    long end() {
        return first + frames.size();
    }

    /** Whether all its frames were dropped, or take no memory. */
    boolean isEmpty() {
        return frames.isEmpty();
    }
}
