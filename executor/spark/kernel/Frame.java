package onager.kernel;

/**
 * Rows of one bucket on their way: Spark's UnsafeRow bytes one after another, then (only where rowSize is -1) the int32
 * length of each row, big endian. Every exchange carries frames; what differs is how they travel.
 */
public final class Frame implements java.io.Serializable {
    public final byte[] bytes;
    /** How many of the bytes count. */
    public final int size;
    public final int rows;
    /** Bytes of each row, or -1 when rows differ. */
    public final int rowSize;

    public Frame(byte[] bytes, int size, int rows, int rowSize) {
        this.bytes = bytes;
        this.size = size;
        this.rows = rows;
        this.rowSize = rowSize;
    }

    /** Return a frame with the same rows and bytes of its own, as many as it needs. */
    public Frame copy() {
        return new Frame(java.util.Arrays.copyOf(bytes, size), size, rows, rowSize);
    }

    /** Where the lengths of rows begin, if there are any. */
    int lengthsAt() {
        return size - 4 * rows;
    }
}
