package onager.rows;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Exception;
import net.jpountz.lz4.LZ4SafeDecompressor;
import onager.store.SpillFile;

/**
 * A frame as it travels between executors: an LZ4 block, or the plain bytes where that is no shorter, and a checksum of what is
 * stored. It lies in memory, or in the file where frames go that nobody has asked for in time.
 *
 * @param stored how many of the bytes count
 * @param bytes null where they lie in the file
 */
public record PackedFrame(int stored, int plain, int rows, int rowSize, int crc, byte[] bytes, SpillFile file, long position) {
    public static final int HEADER = 20;

    /** Pack *frame* into bytes of its own; *packed* has room for as many as *lz4* may need. */
    public static PackedFrame of(Frame frame, LZ4Compressor lz4, byte[] packed) {
        int stored = frame.size() == 0 ? 0 : lz4.compress(frame.bytes(), 0, frame.size(), packed, 0, packed.length);
        boolean isShorter = stored < frame.size();
        byte[] kept = isShorter ? Arrays.copyOf(packed, stored) : Arrays.copyOf(frame.bytes(), frame.size());
        return new PackedFrame(kept.length, frame.size(), frame.rows(), frame.rowSize(), RowFile.crc(kept, kept.length), kept, null, 0L);
    }

    public boolean isInMemory() {
        return file == null;
    }

    /** Return how many bytes of memory it takes. */
    public int held() {
        return file == null ? stored : 0;
    }

    /** Write it to *to*, and return it without its bytes. */
    public PackedFrame spilled(SpillFile to) throws IOException {
        return new PackedFrame(stored, plain, rows, rowSize, crc, null, to, to.write(bytes, stored));
    }

    /** Return it with its bytes in memory. */
    public PackedFrame loaded() throws IOException {
        return file == null ? this : new PackedFrame(stored, plain, rows, rowSize, crc, file.read(position, stored), null, 0L);
    }

    /** Write header and bytes, which are in memory. */
    public void put(ByteBuffer into) {
        into.putInt(stored).putInt(plain).putInt(rows).putInt(rowSize).putInt(crc).put(bytes, 0, stored);
    }

    /** Read what `put` wrote. */
    public static PackedFrame get(ByteBuffer from) {
        PackedFrame header = header(from, new byte[from.getInt(from.position())]);
        from.get(header.bytes);
        return header;
    }

    /** Read the header alone; the frame's bytes are, or will be, in *bytes*. */
    static PackedFrame header(ByteBuffer from, byte[] bytes) {
        return new PackedFrame(from.getInt(), from.getInt(), from.getInt(), from.getInt(), from.getInt(), bytes, null, 0L);
    }

    /** Return the rows, in *into* where they have room there; an IOException when these are not the bytes that were packed. */
    public Frame open(byte[] into, LZ4SafeDecompressor lz4) throws IOException {
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
