package onager.rows;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/** Assembles rows into a frame, in a reusable buffer. */
final class FrameBuilder {
    private static final int MAX_ROWS = 1 << 20; // rows of no columns take no bytes
    private static final byte[] NO_BYTES = new byte[0];
    private static final int[] NO_LENGTHS = new int[0];

    private final int most;
    private byte[] bytes = NO_BYTES;
    private int used = 0;
    private int[] lengths = NO_LENGTHS;
    private int rows = 0;
    private int rowSize = -2; // -2: no row yet, -1: sizes differ, else the size of each row

    /** *most*: the maximum size of a frame in bytes, unless a single row is larger. */
    FrameBuilder(int most) {
        this.most = most;
    }

    int rows() {
        return rows;
    }

    /** Return the memory that the buffer takes, in bytes. */
    long held() {
        return bytes.length + 4L * lengths.length;
    }

    /** Whether a row of *size* bytes does not fit this frame. */
    boolean isFullFor(int size) {
        return rows == MAX_ROWS || rows > 0 && used + size > most;
    }

    /** Add a row of *size* bytes; return by how many bytes the buffer grew. */
    long add(UnsafeRow row, int size) {
        long before = held();
        if (used + size > bytes.length) {
            int grown = Math.max(used + size, Math.min(most, Math.max(4096, 2 * bytes.length)));
            bytes = Arrays.copyOf(bytes, grown);
        }
        if (rowSize != size) {
            mixed(size);
        }
        if (rowSize == -1) {
            if (rows == lengths.length) {
                lengths = Arrays.copyOf(lengths, Math.max(64, 2 * rows));
            }
            lengths[rows] = size;
        }
        Platform.copyMemory(row.getBaseObject(), row.getBaseOffset(), bytes, Platform.BYTE_ARRAY_OFFSET + used, size);
        used += size;
        rows++;
        return held() - before;
    }

    /** Record the length of each row from now on, since sizes differ. */
    private void mixed(int size) {
        if (rowSize == -2) {
            rowSize = size;
        } else if (rowSize >= 0) {
            if (lengths.length < rows) {
                lengths = new int[rows];
            }
            Arrays.fill(lengths, 0, rows, rowSize);
            rowSize = -1;
        }
    }

    /** Return the frame, which shares the buffer's bytes until `reset`. */
    Frame frame() {
        int size = used + (rowSize == -1 ? 4 * rows : 0);
        byte[] all = bytes;
        if (rowSize == -1) {
            if (all.length < size) {
                all = Arrays.copyOf(all, size);
            }
            ByteBuffer.wrap(all, used, 4 * rows).asIntBuffer().put(lengths, 0, rows);
        }
        return new Frame(all, size, rows, rowSize);
    }

    /** Start the next frame; with *release*, free the buffer. A buffer that grew for a large row is always freed. */
    void reset(boolean release) {
        used = 0;
        rows = 0;
        rowSize = -2;
        if (release || bytes.length > most) {
            bytes = NO_BYTES;
            lengths = NO_LENGTHS;
        }
    }
}
