package onager.rows;

/**
 * Rows of one bucket on their way: Spark's UnsafeRow bytes one after another, then (only where rowSize is -1) the int32
 * length of each row, big endian. Every exchange carries frames; what differs is how they travel.
 *
 * @param size how many of the bytes count
 * @param rowSize bytes of each row, or -1 when rows differ
 */
public record Frame(byte[] bytes, int size, int rows, int rowSize) {
    /** Where the lengths of rows begin, if there are any. */
    int lengthsAt() {
        return size - 4 * rows;
    }
}
