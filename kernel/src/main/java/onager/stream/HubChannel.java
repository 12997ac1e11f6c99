package onager.stream;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import onager.rows.PackedFrame;

/** What one execution gives for one bucket, until it was read. All of it is guarded by the hub's lock. */
final class HubChannel {
    private final ArrayDeque<PackedFrame> frames = new ArrayDeque<>();
    private long first = 0; // number of the oldest frame that is kept
    private long rowsBefore = 0; // in frames that are not kept
    /** Bytes of its frames in memory. */
    long held = 0;
    /** When a reader last asked; 0: none has. */
    long askedNs = 0;
    /** Whether readers have asked that do not let frames go. */
    boolean isKept = false;
    /** Whether nobody reads it any more. */
    boolean isClosed = false;

    void add(PackedFrame frame) {
        frames.addLast(frame);
        held += frame.held();
    }

    /** Let go of the frames before number *from*; return how many bytes of memory that gives. */
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

    /** Nobody reads any more; return how many bytes of memory that gives. */
    long close() {
        isClosed = true;
        return drop(Long.MAX_VALUE);
    }

    boolean has(long number) {
        return number >= first;
    }

    /** Frames that lie one after another, and those that were left out before them. */
    static final class Found {
        final List<PackedFrame> frames = new ArrayList<>();
        int skippedFrames = 0;
        long skippedRows = 0;

        /** How many frames a reader is further with it. */
        int count() {
            return skippedFrames + frames.size();
        }
    }

    /**
     * Return frames from number *from* on, one at least where there is one, until they have *mostBytes*; those that end before row
     * *firstRow* are left out.
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

    /** The number of the frame that comes next. */
    long end() {
        return first + frames.size();
    }

    /** Whether all its frames are gone, or in nobody's way. */
    boolean isEmpty() {
        return frames.isEmpty();
    }
}
