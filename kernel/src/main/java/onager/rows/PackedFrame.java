package onager.rows;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Exception;
import net.jpountz.lz4.LZ4SafeDecompressor;
import onager.store.SpillFile;

/**
 * A frame as executors send it: an LZ4 block, or plain bytes if compression does not help, with a checksum. It is in memory or, if no
 * reader asked for it in time, in a spill file.
 *
 * @param stored how many of the bytes are valid
 * @param bytes null if they are in the file
 */
public record PackedFrame(int stored, int plain, int rows, int rowSize, int crc, byte[] bytes, SpillFile file, long position) {
    public static final int HEADER = 20;

    /** Pack a copy of *frame*; *packed* is a buffer large enough for the output of *lz4*. */
    public static PackedFrame of(Frame frame, LZ4Compressor lz4, byte[] packed) {
        int stored = frame.size() == 0 ? 0 : lz4.compress(frame.bytes(), 0, frame.size(), packed, 0, packed.length);
        boolean isShorter = stored < frame.size();
        byte[] kept = isShorter ? Arrays.copyOf(packed, stored) : Arrays.copyOf(frame.bytes(), frame.size());
        return new PackedFrame(kept.length, frame.size(), frame.rows(), frame.rowSize(), RowFile.crc(kept, kept.length), kept, null, 0L);
    }

    public boolean isInMemory() {
        return file == null;
    }

    /** Return the memory that it takes, in bytes. */
    public int held() {
        return file == null ? stored : 0;
    }

    /** Write the bytes to the file *to*, and return the frame without them. */
    public PackedFrame spilled(SpillFile to) throws IOException {
        return new PackedFrame(stored, plain, rows, rowSize, crc, null, to, to.write(bytes, stored));
    }

    /** Return the frame with its bytes in memory. */
    public PackedFrame loaded() throws IOException {
        return file == null ? this : new PackedFrame(stored, plain, rows, rowSize, crc, file.read(position, stored), null, 0L);
    }

    /** Write the header and the bytes, which must be in memory. */
    public void put(ByteBuffer into) {
        into.putInt(stored).putInt(plain).putInt(rows).putInt(rowSize).putInt(crc).put(bytes, 0, stored);
    }

    /** Read what `put` wrote. */
    public static PackedFrame get(ByteBuffer from) {
        PackedFrame header = header(from, new byte[from.getInt(from.position())]);
        from.get(header.bytes);
        return header;
    }

    /** Read only the header; the frame's bytes are, or will be, in *bytes*. */
    static PackedFrame header(ByteBuffer from, byte[] bytes) {
        return new PackedFrame(from.getInt(), from.getInt(), from.getInt(), from.getInt(), from.getInt(), bytes, null, 0L);
    }

    /** Unpack the rows, into *into* if it is large enough; throws an IOException if the checksum does not match. */
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
                throw new IOException("a frame is shorter than its header says");
            }
        }
        return new Frame(rowBytes, plain, rows, rowSize);
    }
}
