package onager.kernel;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.NoSuchFileException;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import org.apache.spark.TaskContext;

/**
 * The output of a stage in row files, read from exactly the executions that are named. Partition i reads bucket i (BUCKET)
 * or all buckets of the i-th run of producers (SLICE: with one partition that is everything), in the order of producers.
 */
public final class RowFileInput implements ExchangeInput {
    public static final int BUCKET = 0;
    public static final int SLICE = 1;

    private final Store store;
    private final String directory;
    private final int stage;
    private final int[] producers;
    private final String[] nonces;
    private final long[] rows;
    private final int partitions;
    private final int mode;

    public RowFileInput(Store store, String directory, int stage, int[] producers, String[] nonces, long[] rows, int partitions, int mode) {
        this.store = store;
        this.directory = directory;
        this.stage = stage;
        this.producers = producers;
        this.nonces = nonces;
        this.rows = rows;
        this.partitions = partitions;
        this.mode = mode;
    }

    public int partitions() {
        return partitions;
    }

    public ExchangeSource open(int i, TaskContext context) {
        int from = mode == SLICE ? (int) ((long) producers.length * i / partitions) : 0;
        int to = mode == SLICE ? (int) ((long) producers.length * (i + 1) / partitions) : producers.length;
        return new Frames(context, mode == BUCKET ? i : -1, from, to);
    }

    private final class Frames implements ExchangeSource {
        private final LZ4SafeDecompressor lz4 = LZ4Factory.fastestInstance().safeDecompressor();
        private final TaskContext context;
        private final int bucket;
        private final int end;
        private int producer;
        private Store.Source source = null;
        private RowFile index = null;
        private int nextBucket = 0;
        private int lastBucket = -1;
        private ByteBuffer frames = null;
        private int framesLeft = 0;
        private byte[] stored = new byte[0];
        private byte[] plain = new byte[0];
        private byte[] before = new byte[0]; // that of the frame given out before

        Frames(TaskContext context, int bucket, int from, int end) {
            this.context = context;
            this.bucket = bucket;
            this.producer = from - 1;
            this.end = end;
        }

        public void close() {
            if (source != null) {
                source.close();
                source = null;
            }
        }

        /** Go to the next frame that has rows: of this bucket, of the next bucket, of the next producer. */
        public Frame next() {
            try {
                while (true) {
                    if (framesLeft > 0) {
                        framesLeft--;
                        return frame();
                    }
                    if (nextBucket <= lastBucket) {
                        frames = index.bucket(nextBucket++);
                        framesLeft = frames.getInt();
                        continue;
                    }
                    close();
                    do {
                        producer++;
                    } while (producer < end && rows[producer] == 0L);
                    if (producer >= end) {
                        producer = end;
                        return null;
                    }
                    open();
                }
            } catch (java.nio.channels.ClosedByInterruptException e) {
                throw new org.apache.spark.TaskKilledException("interrupted");
            } catch (IOException e) {
                throw failure(e);
            } catch (RuntimeException e) {
                if (e instanceof FetchFailure || e instanceof org.apache.spark.TaskKilledException) {
                    throw e;
                }
                throw failure(e); // a damaged block: LZ4Exception, or an index out of bounds
            }
        }

        private String name() {
            return directory + "/" + producers[producer] + "-" + nonces[producer] + ".rows";
        }

        private RuntimeException failure(Exception e) {
            if (!store.exists()) {
                return new java.io.UncheckedIOException(
                        new ExchangeFailure("exchange directory " + store.root + " is not there: create or mount it", e));
            }
            boolean missing = e instanceof NoSuchFileException || e instanceof FileNotFoundException;
            String why = missing ? "is missing" : "is damaged: " + Failures.text(e);
            return new FetchFailure(stage, producers[producer], nonces[producer], store.path(name()), why, e);
        }

        private void open() throws IOException {
            String path = store.path(name());
            index = RowFile.cached(path);
            if (index == null || bucket < 0 || index.bucket(bucket).getInt() > 0) {
                source = store.open(name());
            }
            if (index == null) {
                index = RowFile.read(source);
                if (index.rows != rows[producer]) {
                    throw new IOException("it holds " + index.rows + " rows where " + rows[producer] + " were reported");
                }
                RowFile.remember(path, index);
            }
            if (bucket >= index.buckets()) {
                throw new IOException("it has " + index.buckets() + " buckets, but bucket " + bucket + " was asked for");
            }
            nextBucket = bucket < 0 ? 0 : bucket;
            lastBucket = bucket < 0 ? index.buckets() - 1 : bucket;
        }

        private Frame frame() throws IOException {
            long offset = frames.getLong();
            int length = frames.getInt();
            int size = frames.getInt();
            int rows = frames.getInt();
            int rowSize = frames.getInt();
            int crc = frames.getInt();
            byte[] swap = before;
            before = plain;
            plain = swap.length < size ? new byte[size] : swap;
            if (stored.length < length) {
                stored = new byte[length];
            }
            source.read(offset, stored, length);
            if (RowFile.crc(stored, length) != crc) {
                throw new IOException("a frame at byte " + offset + " does not match its checksum");
            }
            if (length == size) {
                System.arraycopy(stored, 0, plain, 0, size);
            } else if (lz4.decompress(stored, 0, length, plain, 0, size) != size) {
                throw new IOException("a frame at byte " + offset + " is shorter than it says");
            }
            context.taskMetrics().shuffleReadMetrics().incLocalBytesRead((long) length);
            return new Frame(plain, size, rows, rowSize);
        }
    }
}
