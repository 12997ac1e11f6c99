package onager.kernel;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/**
 * Writes one execution's rows into one file, by bucket. Memory stays within `MEMORY` plus one row: when all buffers
 * together reach it, the largest becomes a frame.
 */
public final class RowFileWriter {
    static final int FRAME = 256 * 1024;
    static final long MEMORY = 48L << 20;
    private static final LZ4Compressor LZ4 = LZ4Factory.fastestInstance().fastCompressor();

    private final Store.Pending file;
    private final Buffer[] buffers;
    private long held = 0;
    public long rows = 0;
    private byte[] packed = new byte[0];

    private static final class Buffer {
        byte[] bytes = new byte[0];
        int used = 0;
        int[] lengths = new int[0];
        int rows = 0;
        int rowSize = -2; // -2: no row yet, -1: rows of several sizes, else the size of all
        ByteBuffer entries = ByteBuffer.allocate(0);
        int frames = 0;
    }

    public RowFileWriter(Store.Pending file, int buckets) {
        this.file = file;
        this.buffers = new Buffer[buckets];
        for (int i = 0; i < buckets; i++) {
            buffers[i] = new Buffer();
        }
    }

    public void add(int bucket, UnsafeRow row) throws IOException {
        Buffer b = buffers[bucket];
        int size = row.getSizeInBytes();
        if (b.used + size > b.bytes.length) {
            if (b.used > 0 && b.used + size > FRAME) {
                flush(b);
            }
            if (b.used + size > b.bytes.length) {
                int grown = Math.max(b.used + size, Math.min(FRAME, Math.max(4096, 2 * b.bytes.length)));
                held += grown - b.bytes.length;
                b.bytes = Arrays.copyOf(b.bytes, grown);
            }
        }
        if (b.rowSize != size) {
            mixed(b, size);
        }
        if (b.rowSize == -1) {
            if (b.rows == b.lengths.length) {
                held += 4L * (Math.max(64, 2 * b.rows) - b.rows);
                b.lengths = Arrays.copyOf(b.lengths, Math.max(64, 2 * b.rows));
            }
            b.lengths[b.rows] = size;
        }
        Platform.copyMemory(row.getBaseObject(), row.getBaseOffset(), b.bytes, Platform.BYTE_ARRAY_OFFSET + b.used, size);
        b.used += size;
        b.rows++;
        rows++;
        if (b.rows == 1 << 20) {
            flush(b); // rows of no columns take no bytes
        }
        while (held > MEMORY) {
            flush(largest());
        }
    }

    /** Note that a row of another size came: from now on lengths are kept one by one. */
    private void mixed(Buffer b, int size) {
        if (b.rowSize == -2) {
            b.rowSize = size;
        } else if (b.rowSize >= 0) {
            if (b.lengths.length < b.rows) {
                held += 4L * (b.rows - b.lengths.length);
                b.lengths = new int[b.rows];
            }
            Arrays.fill(b.lengths, 0, b.rows, b.rowSize);
            b.rowSize = -1;
        }
    }

    private Buffer largest() {
        Buffer found = buffers[0];
        for (int i = 1; i < buffers.length; i++) {
            if (buffers[i].bytes.length + 4L * buffers[i].lengths.length > found.bytes.length + 4L * found.lengths.length) {
                found = buffers[i];
            }
        }
        return found;
    }

    /** Write what *b* holds as a frame; with memory short its buffer is given back, too. */
    private void flush(Buffer b) throws IOException {
        if (b.rows > 0) {
            int plain = b.used + (b.rowSize == -1 ? 4 * b.rows : 0);
            byte[] from = b.bytes;
            if (b.rowSize == -1) {
                if (from.length < plain) {
                    from = Arrays.copyOf(from, plain);
                }
                ByteBuffer.wrap(from, b.used, 4 * b.rows).asIntBuffer().put(b.lengths, 0, b.rows);
            }
            int most = LZ4.maxCompressedLength(plain);
            if (packed.length < most) {
                packed = new byte[most];
            }
            int stored = plain == 0 ? 0 : LZ4.compress(from, 0, plain, packed, 0, most);
            byte[] to = packed;
            if (stored >= plain) {
                stored = plain;
                to = from;
            }
            append(b, to, stored, plain);
        }
        b.used = 0;
        b.rows = 0;
        b.rowSize = -2;
        if (held > MEMORY / 2 || b.bytes.length > FRAME) {
            held -= b.bytes.length + 4L * b.lengths.length;
            b.bytes = new byte[0];
            b.lengths = new int[0];
        }
    }

    private void append(Buffer b, byte[] bytes, int stored, int plain) throws IOException {
        if (b.entries.remaining() < RowFile.FRAME_ENTRY) {
            ByteBuffer grown = ByteBuffer.allocate(Math.max(4 * RowFile.FRAME_ENTRY, 2 * b.entries.capacity()));
            b.entries.flip();
            grown.put(b.entries);
            b.entries = grown;
        }
        b.entries.putLong(file.position).putInt(stored).putInt(plain).putInt(b.rows).putInt(b.rowSize);
        b.entries.putInt(RowFile.crc(bytes, stored));
        b.frames++;
        file.write(bytes, 0, stored);
    }

    /** Write out what is held, the index and the trailer; the file is then ready to be committed. */
    public void finish() throws IOException {
        int length = 12;
        for (int i = 0; i < buffers.length; i++) {
            flush(buffers[i]);
            length += 4 + buffers[i].frames * RowFile.FRAME_ENTRY;
        }
        ByteBuffer end = ByteBuffer.allocate(length + RowFile.TRAILER);
        end.putInt(buffers.length).putLong(rows);
        for (int i = 0; i < buffers.length; i++) {
            end.putInt(buffers[i].frames);
            buffers[i].entries.flip();
            end.put(buffers[i].entries);
        }
        int crc = RowFile.crc(end.array(), length);
        end.putInt(length).putInt(crc).putLong(RowFile.MAGIC);
        file.write(end.array(), 0, end.capacity());
    }
}
