package onager.kernel;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/** A place between the rows of a frame. */
final class FrameCursor {
    private Frame frame = null;
    private int left = 0;
    private int at;
    private int lengthAt;

    /** Go before the first row of *next*. */
    void start(Frame next) {
        frame = next;
        left = next.rows;
        at = 0;
        lengthAt = next.lengthsAt();
    }

    boolean hasNext() {
        return left > 0;
    }

    /** Let *into* be the next row; it lies in the frame. */
    void next(UnsafeRow into) {
        int size = frame.rowSize;
        if (size < 0) {
            size = length(lengthAt);
            lengthAt += 4;
        }
        into.pointTo(frame.bytes, Platform.BYTE_ARRAY_OFFSET + at, size);
        at += size;
        left--;
    }

    /** Let *into* be the last row, and stay where this is. */
    void last(UnsafeRow into) {
        int size = frame.rowSize;
        int end = frame.size;
        if (size < 0) {
            size = length(frame.size - 4);
            end = frame.lengthsAt();
        }
        into.pointTo(frame.bytes, Platform.BYTE_ARRAY_OFFSET + end - size, size);
    }

    private int length(int offset) {
        return Integer.reverseBytes(Platform.getInt(frame.bytes, Platform.BYTE_ARRAY_OFFSET + offset));
    }
}
