package onager.run;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.zip.CRC32;
import onager.store.Store;
import org.apache.spark.TaskContext;

/**
 * A partition of a result: an Arrow IPC stream, in memory while it is small, else in a file, followed by the checksums of its pieces.
 * Readers of Arrow stop at the stream's end.
 *
 * <pre>
 * result  = piece* index trailer
 * piece   = a message of the stream: the schema, then each batch; the last one is the stream's end mark
 * index   = pieces: int32, then by piece: length: int64, crc32: int32
 * trailer = index length: int32, crc32 of the index: int32, magic: int64
 * </pre>
 * All numbers are big endian. The report has the checksum of the index, so that only the reported result is accepted
 * (onager/sealed_results.py reads it).
 */
final class ResultFile extends OutputStream {
    private static final long MAGIC = 0x4F4E41474F525331L; // "ONAGORS1"
    private static final int TRAILER = 16;
    private static final int ENTRY = 12;
    private static final int COPY = 1 << 20;
    /** The number of bytes after the stream of a result without rows. */
    static final int SMALLEST_END = 4 + 2 * ENTRY + TRAILER;

    private final Store store;
    private final String name;
    private final TaskContext context;
    private final int inline;
    private final boolean isPart;
    private final CRC32 crc = new CRC32();
    private ByteBuffer entries = ByteBuffer.allocate(16 * ENTRY);
    private long length = 0;
    private ByteArrayOutputStream held = new ByteArrayOutputStream();
    private Store.Pending file = null;

    /**
     * *name*: of the file, which is created beyond *inline* bytes; *context*: the task that writes, or null; *isPart*: it is combined with
     * others here, and need not survive a loss of power.
     */
    ResultFile(Store store, String name, TaskContext context, int inline, boolean isPart) {
        this.store = store;
        this.name = name;
        this.context = context;
        this.inline = inline;
        this.isPart = isPart;
    }

    @Override
    public void write(int b) throws IOException {
        write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int offset, int count) throws IOException {
        crc.update(bytes, offset, count);
        length += count;
        put(bytes, offset, count);
    }

    private void put(byte[] bytes, int offset, int count) throws IOException {
        if (file == null && held.size() + count > inline) {
            if (context != null) {
                context.killTaskIfInterrupted(); // else it would recreate the directory of a job that has ended
            }
            file = store.create(name);
            byte[] before = held.toByteArray();
            held = null;
            file.write(before, 0, before.length);
        }
        if (file == null) {
            held.write(bytes, offset, count);
        } else {
            file.write(bytes, offset, count);
        }
    }

    /** End the current piece. */
    void endPiece() {
        if (entries.remaining() < ENTRY) {
            entries = ByteBuffer.allocate(2 * entries.capacity()).put(entries.flip());
        }
        entries.putLong(length).putInt((int) crc.getValue());
        crc.reset();
        length = 0;
    }

    /** Append the batches of the result *part*, check their checksums, and close *part*. */
    void append(Store.Source part, String checksum) throws IOException {
        try (part) {
            ByteBuffer index = index(part, checksum);
            var buffer = new byte[COPY];
            int pieces = index.getInt();
            long at = 0;
            for (int i = 0; i < pieces; i++) {
                long end = at + index.getLong();
                int expected = index.getInt();
                if (i > 0 && i < pieces - 1) {
                    while (at < end) {
                        int n = (int) Math.min(COPY, end - at);
                        part.read(at, buffer, n);
                        write(buffer, 0, n);
                        at += n;
                    }
                    if ((int) crc.getValue() != expected) {
                        throw new IOException("batch " + (i - 1) + " of a partition of the result does not match its checksum");
                    }
                    endPiece();
                }
                at = end;
            }
        }
    }

    private static ByteBuffer index(Store.Source part, String checksum) throws IOException {
        var trailer = new byte[TRAILER];
        part.read(part.size - TRAILER, trailer, TRAILER);
        ByteBuffer t = ByteBuffer.wrap(trailer);
        int size = t.getInt();
        t.getInt();
        if (t.getLong() != MAGIC || size < 4 || size > part.size - TRAILER) {
            throw new IOException("the end of a partition of the result is not that of a result");
        }
        var index = new byte[size];
        part.read(part.size - TRAILER - size, index, size);
        var crc = new CRC32();
        crc.update(index, 0, size);
        if (!text(crc).equals(checksum)) {
            throw new IOException("the index of a partition of the result does not match its checksum");
        }
        return ByteBuffer.wrap(index);
    }

    /** Write the index, rename the file, if there is one, to its final name, and fill in *done*. */
    void finish(Written done) throws IOException {
        int size = 4 + entries.position();
        ByteBuffer end = ByteBuffer.allocate(size + TRAILER);
        end.putInt(entries.position() / ENTRY).put(entries.flip());
        crc.reset();
        crc.update(end.array(), 0, size);
        done.checksum = text(crc);
        end.putInt(size).putInt((int) crc.getValue()).putLong(MAGIC);
        put(end.array(), 0, end.capacity());
        if (file == null) {
            done.inline = held.toByteArray();
            done.bytes = done.inline.length;
        } else {
            if (isPart) {
                file.commit();
            } else {
                file.commitDurably();
            }
            done.bytes = file.position();
        }
    }

    /** Discard the output. */
    void abort() {
        if (file != null) {
            file.abort();
        }
    }

    private static String text(CRC32 crc) {
        return "crc32:%08x".formatted(crc.getValue());
    }

    /** A result that was returned inline with its task's outcome. */
    static final class Held extends Store.Source {
        private final byte[] bytes;

        Held(byte[] bytes) {
            super(bytes.length);
            this.bytes = bytes;
        }

        @Override
        public void read(long position, byte[] into, int length) throws IOException {
            if (position < 0 || position + length > bytes.length) {
                throw new EOFException("it ends early");
            }
            System.arraycopy(bytes, (int) position, into, 0, length);
        }

        @Override
        protected void end() {}
    }
}
