package onager.rows;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.zip.CRC32C;
import onager.store.Store;

/**
 * The index at the end of a row file.
 *
 * <pre>
 * file    = frame* index trailer
 * frame   = LZ4 block of: row bytes one after another, then (only where rowSize is -1) the int32 length of each row
 * index   = buckets: int32, rows (of those buckets that count): int64, then by bucket: frames: int32, then by frame:
 *           offset: int64, stored: int32, plain: int32, rows: int32, rowSize: int32, crc32c of the stored bytes: int32
 * trailer = index length: int32, crc32c of the index: int32, magic: int64
 * </pre>
 * All numbers are big endian. Rows are Spark's UnsafeRow bytes, multiples of 8 long, so they stay aligned in a frame. A frame
 * whose `stored` equals `plain` is not compressed.
 */
final class RowFile {
    static final long MAGIC = 0x4F4E41474F525731L; // "ONAGORW1"
    static final int TRAILER = 16;
    static final int FRAME_ENTRY = 28;
    /** The offset of the number of rows in a frame's entry. */
    static final int ROWS_AT = 16;
    private static final long CACHED_BYTES = 32L << 20;
    private static final LinkedHashMap<String, RowFile> CACHE = new LinkedHashMap<>(64, 0.75f, true);
    private static long cached = 0;

    final long rows;
    private final ByteBuffer index;
    private final int[] starts;

    private RowFile(byte[] bytes) {
        index = ByteBuffer.wrap(bytes);
        starts = new int[index.getInt()];
        rows = index.getLong();
        int at = 12;
        for (int i = 0; i < starts.length; i++) {
            starts[i] = at;
            at += 4 + FRAME_ENTRY * index.getInt(at);
        }
    }

    int buckets() {
        return starts.length;
    }

    /** Return the index positioned at *bucket*'s frame count, which its frames follow. */
    ByteBuffer bucket(int bucket) {
        return index.duplicate().position(starts[bucket]);
    }

    /** Return the uncompressed size of *bucket*'s rows in bytes. */
    long plainBytes(int bucket) {
        int at = starts[bucket];
        long sum = 0;
        for (int i = index.getInt(at); i > 0; i--) {
            sum += index.getInt(at + 4 + FRAME_ENTRY * (i - 1) + 12);
        }
        return sum;
    }

    static int crc(byte[] bytes, int length) {
        var crc = new CRC32C();
        crc.update(bytes, 0, length);
        return (int) crc.getValue();
    }

    /** Read and check the index of an open file; throws an IOException if it is damaged. */
    static RowFile read(Store.Source source) throws IOException {
        if (source.size < TRAILER) {
            throw new IOException("it is too short");
        }
        var trailer = new byte[TRAILER];
        source.read(source.size - TRAILER, trailer, TRAILER);
        ByteBuffer t = ByteBuffer.wrap(trailer);
        int length = t.getInt();
        int crc = t.getInt();
        if (t.getLong() != MAGIC || length < 12 || length > source.size - TRAILER) {
            throw new IOException("its end is not that of a row file");
        }
        var bytes = new byte[length];
        source.read(source.size - TRAILER - length, bytes, length);
        if (crc(bytes, length) != crc) {
            throw new IOException("its index does not match its checksum");
        }
        return new RowFile(bytes);
    }

    private long size() {
        return index.capacity() + 4L * starts.length;
    }

    /** Return the index of the file at *path* if this process has read it before, else null. A file with a given name never changes. */
    static RowFile cached(String path) {
        synchronized (CACHE) {
            return CACHE.get(path);
        }
    }

    static void remember(String path, RowFile file) {
        synchronized (CACHE) {
            if (CACHE.put(path, file) == null) {
                cached += file.size();
            }
            for (var oldest = CACHE.values().iterator(); cached > CACHED_BYTES && oldest.hasNext();) {
                cached -= oldest.next().size();
                oldest.remove();
            }
        }
    }
}
