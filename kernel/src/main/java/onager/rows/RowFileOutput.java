package onager.rows;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import onager.store.Store;

/**
 * Row files, one for each execution of a task. An execution without rows writes none.
 *
 * @param counted rows count in this many first buckets only; the others hold samples
 */
public record RowFileOutput(Store store, String directory, int buckets, int counted) implements ExchangeOutput {
    private static final int FRAME = 256 * 1024;

    @Override
    public int frameBytes() {
        return FRAME;
    }

    @Override
    public ExchangeSink open(int partition, String nonce) throws IOException {
        store.check();
        return new Sink(name(directory, partition, nonce));
    }

    @Override
    public void prepare() throws IOException {
        store.prepare(directory);
    }

    @Override
    public void discard(int partition, String nonce) {
        store.discard(name(directory, partition, nonce));
    }

    static String name(String directory, int partition, String nonce) {
        return directory + "/" + partition + "-" + nonce + ".rows";
    }

    private final class Sink implements ExchangeSink {
        private final LZ4Compressor lz4 = LZ4Factory.fastestInstance().fastCompressor();
        private final String name;
        private final ByteBuffer[] entries = new ByteBuffer[buckets]; // of the index, by bucket
        private Store.Pending file = null;
        private byte[] packed = new byte[0];
        private final long[] bytesOf = new long[buckets];
        private long bytes = 0;

        Sink(String name) {
            this.name = name;
            Arrays.setAll(entries, i -> ByteBuffer.allocate(0));
        }

        @Override
        public long bytes() {
            return bytes;
        }

        @Override
        public long[] bytesOfBuckets() {
            return bytesOf;
        }

        @Override
        public boolean put(int bucket, Frame frame) throws IOException {
            if (file == null) {
                file = store.createIn(name);
            }
            int most = lz4.maxCompressedLength(frame.size());
            if (packed.length < most) {
                packed = new byte[most];
            }
            int stored = frame.size() == 0 ? 0 : lz4.compress(frame.bytes(), 0, frame.size(), packed, 0, most);
            byte[] from = packed;
            if (stored >= frame.size()) {
                stored = frame.size();
                from = frame.bytes();
            }
            room(bucket).putLong(file.position()).putInt(stored).putInt(frame.size()).putInt(frame.rows()).putInt(frame.rowSize())
                    .putInt(RowFile.crc(from, stored));
            file.write(from, 0, stored);
            bytesOf[bucket] += stored;
            return true;
        }

        private ByteBuffer room(int bucket) {
            ByteBuffer all = entries[bucket];
            if (all.remaining() < RowFile.FRAME_ENTRY) {
                int grown = Math.max(4 * RowFile.FRAME_ENTRY, 2 * all.capacity());
                entries[bucket] = ByteBuffer.allocate(grown).put(all.flip());
            }
            return entries[bucket];
        }

        /** Write the index and the trailer, and rename the file to its final name. */
        @Override
        public void finish(long[] rows) throws IOException {
            if (file == null) {
                return;
            }
            int length = 12;
            long sum = 0;
            for (int i = 0; i < buckets; i++) {
                length += 4 + entries[i].flip().limit();
                sum += i < counted ? rows[i] : 0L;
            }
            ByteBuffer end = ByteBuffer.allocate(length + RowFile.TRAILER);
            end.putInt(buckets).putLong(sum);
            for (ByteBuffer each : entries) {
                end.putInt(each.limit() / RowFile.FRAME_ENTRY).put(each);
            }
            end.putInt(length).putInt(RowFile.crc(end.array(), length)).putLong(RowFile.MAGIC);
            file.write(end.array(), 0, end.capacity());
            bytes = file.position();
            file.commit();
        }

        @Override
        public void abort(Throwable why) {
            if (file != null) {
                file.abort();
            }
        }
    }
}
