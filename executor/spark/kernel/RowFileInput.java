package onager.kernel;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.NoSuchFileException;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import org.apache.spark.TaskContext;

/**
 * The output of a stage in row files, read from exactly the executions that are named. Partition i reads bucket i (BUCKET),
 * all buckets of the i-th slice of producers (SLICE: with one partition that is everything), or everything (ALL), in the order of
 * producers.
 */
public final class RowFileInput implements ExchangeInput, SortedInput {
    public static final int BUCKET = 0;
    public static final int SLICE = 1;
    public static final int ALL = 2;

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

    public int streamed() {
        return -1;
    }

    public ExchangeSource open(int i, TaskContext context) {
        int from = mode == SLICE ? (int) ((long) producers.length * i / partitions) : 0;
        int to = mode == SLICE ? (int) ((long) producers.length * (i + 1) / partitions) : producers.length;
        return new Frames(context, mode == BUCKET ? i : -1, from, to);
    }

    public int runs() {
        return producers.length;
    }

    public ExchangeSource open(int run, long from, long to, TaskContext context) {
        Frames frames = new Frames(context, ROWS, run, run + 1);
        frames.firstRow = from;
        frames.endRow = to;
        return frames;
    }

    /** Open the keys that were sampled of all runs. */
    ExchangeSource samples() {
        return new Frames(null, SAMPLES, 0, producers.length);
    }

    /** Return the most bytes that any bucket holds, uncompressed; it takes a look at the index of every file. */
    long largestBucket() {
        long[] bytes = bucketBytes(partitions);
        long most = 0L;
        for (int b = 0; b < bytes.length; b++) {
            most = Math.max(most, bytes[b]);
        }
        return most;
    }

    /** Return the bytes of all files, which have one bucket each, uncompressed; it takes a look at the index of every file. */
    long plainBytes() {
        return bucketBytes(1)[0];
    }

    private long[] bucketBytes(int buckets) {
        long[] bytes = new long[buckets];
        for (int p = 0; p < producers.length; p++) {
            if (rows[p] > 0L) {
                try {
                    RowFile index = index(p);
                    for (int b = 0; b < buckets; b++) {
                        bytes[b] += index.plainBytes(b);
                    }
                } catch (IOException e) {
                    throw failure(p, e);
                } catch (IndexOutOfBoundsException e) {
                    throw failure(p, e);
                }
            }
        }
        return bytes;
    }

    private RowFile index(int producer) throws IOException {
        RowFile index = RowFile.cached(store.path(name(producer)));
        if (index == null) {
            Store.Source source = store.open(name(producer));
            try {
                index = checked(producer, source);
            } finally {
                source.close();
            }
        }
        return index;
    }

    /** Read the index of the file *source* and keep it. */
    private RowFile checked(int producer, Store.Source source) throws IOException {
        RowFile index = RowFile.read(source);
        if (index.rows != rows[producer]) {
            throw new IOException("it holds " + index.rows + " rows where " + rows[producer] + " were reported");
        }
        RowFile.remember(store.path(name(producer)), index);
        return index;
    }

    private String name(int producer) {
        return directory + "/" + producers[producer] + "-" + nonces[producer] + ".rows";
    }

    private RuntimeException failure(int producer, Exception e) {
        if (!store.exists()) {
            return new java.io.UncheckedIOException(
                    new ExchangeFailure("exchange directory " + store.root + " is not there: create or mount it", e));
        }
        boolean missing = e instanceof NoSuchFileException || e instanceof FileNotFoundException;
        String why = missing ? "is missing" : "is damaged: " + Failures.text(e);
        return new FetchFailure(stage, producers[producer], nonces[producer], store.path(name(producer)), why, e);
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
        /** The places of the rows that are wanted of a bucket, and that of the next frame's first row. */
        private long firstRow = 0;
        private long endRow = Long.MAX_VALUE;
        private long nextRow = 0;
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
                        if (isWanted()) {
                            return frame();
                        }
                        frames.position(frames.position() + RowFile.FRAME_ENTRY);
                        continue;
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
                throw failure(producer, e);
            } catch (RuntimeException e) {
                if (e instanceof FetchFailure || e instanceof org.apache.spark.TaskKilledException) {
                    throw e;
                }
                throw failure(producer, e); // a damaged block: LZ4Exception, or an index out of bounds
            }
        }

        private void open() throws IOException {
            index = RowFile.cached(store.path(name(producer)));
            if (index == null || bucket < 0 || index.bucket(bucket).getInt() > 0) {
                source = store.open(name(producer));
            }
            if (index == null) {
                index = checked(producer, source);
            }
            if (bucket >= index.buckets()) {
                throw new IOException("it has " + index.buckets() + " buckets, but bucket " + bucket + " was asked for");
            }
            nextBucket = bucket < 0 ? 0 : bucket;
            lastBucket = bucket < 0 ? index.buckets() - 1 : bucket;
        }

        /** Whether the next frame has rows that are wanted; it counts them. */
        private boolean isWanted() {
            long first = nextRow;
            nextRow += frames.getInt(frames.position() + RowFile.ROWS_AT);
            return first < endRow && nextRow > firstRow;
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
            if (context != null) {
                context.taskMetrics().shuffleReadMetrics().incLocalBytesRead((long) length);
            }
            return new Frame(plain, size, rows, rowSize);
        }
    }
}
