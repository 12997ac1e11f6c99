package onager.rows;

/**
 * Rows of one bucket in transit: the concatenated bytes of Spark's UnsafeRows, then (only if rowSize is -1) the int32 length of each row,
 * big endian. Every exchange carries frames, in its own way.
 *
 * @param size how many of the bytes are valid
 * @param rowSize the size of each row in bytes, or -1 if sizes differ
 */
public record Frame(byte[] bytes, int size, int rows, int rowSize) {
    /** Return the offset of the rows' lengths, if there are any. */
    int lengthsAt() {
        return size - 4 * rows;
    }
}
