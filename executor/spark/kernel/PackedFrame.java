package onager.kernel;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Exception;
import net.jpountz.lz4.LZ4SafeDecompressor;

/**
 * A frame as it travels between executors: an LZ4 block, or the plain bytes where that is no shorter, and a checksum of what is
 * stored. It lies in memory, or in the file where frames go that nobody has asked for in time.
 */
final class PackedFrame {
    static final int HEADER = 20;

    final int stored;
    final int rows;
    private final int plain;
    private final int rowSize;
    private final int crc;
    private final byte[] bytes; // null where they lie in the file
    private final SpillFile file;
    private final long position;

    private PackedFrame(int stored, int plain, int rows, int rowSize, int crc, byte[] bytes, SpillFile file, long position) {
        this.stored = stored;
        this.plain = plain;
        this.rows = rows;
        this.rowSize = rowSize;
        this.crc = crc;
        this.bytes = bytes;
        this.file = file;
        this.position = position;
    }

    /** Pack *frame* into bytes of its own; *packed* has room for as many as *lz4* may need. */
    static PackedFrame of(Frame frame, LZ4Compressor lz4, byte[] packed) {
        int stored = frame.size == 0 ? 0 : lz4.compress(frame.bytes, 0, frame.size, packed, 0, packed.length);
        byte[] kept;
        if (stored >= frame.size) {
            stored = frame.size;
            kept = Arrays.copyOf(frame.bytes, stored);
        } else {
            kept = Arrays.copyOf(packed, stored);
        }
        return new PackedFrame(stored, frame.size, frame.rows, frame.rowSize, RowFile.crc(kept, stored), kept, null, 0L);
    }

    boolean isInMemory() {
        return file == null;
    }

    /** Write it to *to*, and return it without its bytes. */
    PackedFrame spilled(SpillFile to) throws IOException {
        return new PackedFrame(stored, plain, rows, rowSize, crc, null, to, to.write(bytes, stored));
    }

    /** Return it with its bytes in memory. */
    PackedFrame loaded() throws IOException {
        return file == null ? this : new PackedFrame(stored, plain, rows, rowSize, crc, file.read(position, stored), null, 0L);
    }

    /** Write header and bytes, which are in memory. */
    void put(ByteBuffer into) {
        into.putInt(stored).putInt(plain).putInt(rows).putInt(rowSize).putInt(crc).put(bytes, 0, stored);
    }

    /** Read what `put` wrote. */
    static PackedFrame get(ByteBuffer from) {
        int stored = from.getInt();
        int plain = from.getInt();
        int rows = from.getInt();
        int rowSize = from.getInt();
        int crc = from.getInt();
        byte[] bytes = new byte[stored];
        from.get(bytes);
        return new PackedFrame(stored, plain, rows, rowSize, crc, bytes, null, 0L);
    }

    /** Return the rows, in *into* where they have room there; an IOException when these are not the bytes that were packed. */
    Frame open(byte[] into, LZ4SafeDecompressor lz4) throws IOException {
        if (RowFile.crc(bytes, stored) != crc) {
            throw new IOException("a frame does not match its checksum");
        }
        byte[] rowBytes = into.length < plain ? new byte[plain] : into;
        if (stored == plain) {
            System.arraycopy(bytes, 0, rowBytes, 0, plain);
        } else {
            int got;
            try {
                got = lz4.decompress(bytes, 0, stored, rowBytes, 0, plain);
            } catch (LZ4Exception e) {
                throw new IOException("a frame cannot be unpacked", e);
            }
            if (got != plain) {
                throw new IOException("a frame is shorter than it says");
            }
        }
        return new Frame(rowBytes, plain, rows, rowSize);
    }
}
