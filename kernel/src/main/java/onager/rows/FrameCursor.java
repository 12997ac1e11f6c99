package onager.rows;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/** A position between the rows of a frame. */
public final class FrameCursor {
    private Frame frame = null;
    private int left = 0;
    private int at;
    private int lengthAt;

    /** Move before the first row of *next*. */
    public void start(Frame next) {
        frame = next;
        left = next.rows();
        at = 0;
        lengthAt = next.lengthsAt();
    }

    public boolean hasNext() {
        return left > 0;
    }

    /** Point *into* to the next row, within the frame's bytes. */
    public void next(UnsafeRow into) {
        int size = frame.rowSize();
        if (size < 0) {
            size = length(lengthAt);
            lengthAt += 4;
        }
        into.pointTo(frame.bytes(), Platform.BYTE_ARRAY_OFFSET + at, size);
        at += size;
        left--;
    }

    /** Point *into* to the last row, without moving. */
    public void last(UnsafeRow into) {
        boolean isMixed = frame.rowSize() < 0;
        int size = isMixed ? length(frame.size() - 4) : frame.rowSize();
        int end = isMixed ? frame.lengthsAt() : frame.size();
        into.pointTo(frame.bytes(), Platform.BYTE_ARRAY_OFFSET + end - size, size);
    }

    private int length(int offset) {
        return Integer.reverseBytes(Platform.getInt(frame.bytes(), Platform.BYTE_ARRAY_OFFSET + offset));
    }
}
