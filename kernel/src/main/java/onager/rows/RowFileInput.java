package onager.rows;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.file.NoSuchFileException;
import java.util.List;
import java.util.stream.LongStream;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import onager.failure.ExchangeFailure;
import onager.failure.Failures;
import onager.failure.FetchFailure;
import onager.store.Store;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;

/** The output of a stage in row files, read from the named executions only, in the order of producers. */
public record RowFileInput(Store store, InputSpec spec, int partitions, Mode mode, BucketRead[] reads) implements ExchangeInput, SortedInput {
    /** What partition i of the input is. */
    public enum Mode {
        /** Bucket i, or what the i-th of the given reads says. */
        BUCKET,
        /** All buckets of the i-th slice of producers. */
        SLICE,
        /** Everything. */
        ALL,
        /** All that the i-th producer gave, as it gave it. */
        PRODUCER
    }

    /** So many stored bytes of a broadcast's input are read by the thread that builds it; of more, each task reads so many. */
    public static final long SMALL_BYTES = 4L << 20;
    /** If these take no more memory. */
    private static final long SMALL_IN_MEMORY = 4L * SMALL_BYTES;
    /** An object for each row, beside its bytes. */
    private static final long BYTES_OF_OBJECT = 64;

    public RowFileInput(Store store, InputSpec spec, int partitions, Mode mode) {
        this(store, spec, partitions, mode, null);
    }

    /** Return the input of which partition i is what the i-th of *reads* says. */
    public static RowFileInput of(Store store, InputSpec spec, List<BucketRead> reads) {
        return new RowFileInput(store, spec, reads.size(), Mode.BUCKET, reads.toArray(BucketRead[]::new));
    }

    @Override
    public int streamed() {
        return -1;
    }

    @Override
    public boolean isSmall() {
        return partitions == 1 && spec.bytes() <= SMALL_BYTES
                && largestPartition() + BYTES_OF_OBJECT * LongStream.of(spec.rows()).sum() <= SMALL_IN_MEMORY;
    }

    @Override
    public ExchangeSource open(int i, TaskContext context) {
        return new Frames(context, read(i));
    }

    private BucketRead read(int i) {
        return switch (mode) {
            case BUCKET -> reads == null ? BucketRead.bucket(i, 0, runs()) : reads[i].of(spec.stage(), runs());
            case SLICE -> BucketRead.all((int) ((long) runs() * i / partitions), (int) ((long) runs() * (i + 1) / partitions));
            case ALL -> BucketRead.all(0, runs());
            case PRODUCER -> BucketRead.all(i, i + 1);
        };
    }

    @Override
    public int runs() {
        return spec.producers().length;
    }

    @Override
    public ExchangeSource open(int run, long from, long to, TaskContext context) {
        var frames = new Frames(context, BucketRead.bucket(ROWS, run, run + 1));
        frames.firstRow = from;
        frames.endRow = to;
        return frames;
    }

    /** Open the sampled keys of all runs. */
    public ExchangeSource samples() {
        return new Frames(null, BucketRead.bucket(SAMPLES, 0, runs()));
    }

    /** Return the uncompressed size of the largest partition; reads the index of every file. */
    public long largestPartition() {
        var bytes = new long[partitions];
        for (int p = 0; p < runs(); p++) {
            if (spec.rows()[p] > 0L) {
                try {
                    RowFile index = index(p);
                    for (int i = 0; i < partitions; i++) {
                        BucketRead read = read(i);
                        bytes[i] += read.hasProducer(p) ? plainBytes(index, read) : 0L;
                    }
                } catch (IOException | IndexOutOfBoundsException e) {
                    throw failure(p, e);
                }
            }
        }
        return LongStream.of(bytes).max().orElse(0L);
    }

    private static long plainBytes(RowFile index, BucketRead read) {
        long bytes = 0;
        for (int b = read.first(); b < read.end(index.buckets()); b++) {
            bytes += index.plainBytes(b);
        }
        return bytes;
    }

    private RowFile index(int producer) throws IOException {
        RowFile known = RowFile.cached(path(producer));
        if (known != null) {
            return known;
        }
        try (var source = store.open(name(producer))) {
            return checked(producer, source);
        }
    }

    /** Read, check and cache the index of the file *source*. */
    private RowFile checked(int producer, Store.Source source) throws IOException {
        RowFile index = RowFile.read(source);
        if (index.rows != spec.rows()[producer]) {
            throw new IOException("it holds " + index.rows + " rows where " + spec.rows()[producer] + " were reported");
        }
        RowFile.remember(path(producer), index);
        return index;
    }

    private String name(int producer) {
        return RowFileOutput.name(spec.directory(), spec.producers()[producer], spec.nonces()[producer]);
    }

    private String path(int producer) {
        return store.path(name(producer));
    }

    private RuntimeException failure(int producer, Exception e) {
        if (!store.exists()) {
            return new UncheckedIOException(ExchangeFailure.ofMissing(store.root(), e));
        }
        boolean missing = e instanceof NoSuchFileException || e instanceof FileNotFoundException;
        String why = missing ? "is missing" : "is damaged: " + Failures.text(e);
        return new FetchFailure(spec.stage(), spec.producers()[producer], spec.nonces()[producer], path(producer), why, e);
    }

    private final class Frames implements ExchangeSource {
        private final LZ4SafeDecompressor lz4 = LZ4Factory.fastestInstance().safeDecompressor();
        private final TaskContext context;
        private final FetchWait wait;
        private final BucketRead read;
        private int producer;
        private Store.Source source = null;
        private RowFile index = null;
        private int nextBucket = 0;
        private int endBucket = 0;
        private ByteBuffer frames = null;
        private int framesLeft = 0;
        /** The positions of the wanted rows of a bucket, and that of the next frame's first row. */
        private long firstRow = 0;
        private long endRow = Long.MAX_VALUE;
        private long nextRow = 0;
        private byte[] stored = new byte[0];
        private byte[] plain = new byte[0];
        private byte[] before = new byte[0]; // of the frame returned before

        Frames(TaskContext context, BucketRead read) {
            this.context = context;
            this.wait = new FetchWait(context);
            this.read = read;
            this.producer = read.firstProducer() - 1;
        }

        @Override
        public void close() {
            if (source != null) {
                source.close();
                source = null;
            }
        }

        /** Go to the next frame with rows: in this bucket, the next bucket, or the next producer. */
        @Override
        public Frame next() {
            long begunNs = System.nanoTime();
            try {
                while (true) {
                    if (framesLeft > 0) {
                        framesLeft--;
                        if (isWanted()) {
                            return frame();
                        }
                        frames.position(frames.position() + RowFile.FRAME_ENTRY);
                    } else if (nextBucket < endBucket) {
                        frames = index.bucket(nextBucket++);
                        framesLeft = frames.getInt();
                    } else if (!openNext()) {
                        return null;
                    }
                }
            } catch (ClosedByInterruptException e) {
                throw new TaskKilledException("interrupted");
            } catch (FetchFailure | TaskKilledException e) {
                throw e;
            } catch (IOException | RuntimeException e) {
                throw failure(producer, e); // a damaged block may be an index out of bounds
            } finally {
                wait.since(begunNs);
            }
        }

        /** Go to the next producer with rows; false if there is none. */
        private boolean openNext() throws IOException {
            close();
            do {
                producer++;
            } while (producer < read.endProducer() && spec.rows()[producer] == 0L);
            if (producer >= read.endProducer()) {
                producer = read.endProducer();
                return false;
            }
            index = RowFile.cached(path(producer));
            if (index == null) {
                source = store.open(name(producer));
                index = checked(producer, source);
            }
            nextBucket = read.first();
            endBucket = read.end(index.buckets());
            if (endBucket > index.buckets()) {
                throw new IOException("it has " + index.buckets() + " buckets, but bucket " + (endBucket - 1) + " was asked for");
            }
            if (source == null && hasFrames()) {
                source = store.open(name(producer));
            }
            return true;
        }

        /** Whether the producer has rows in the wanted buckets. */
        private boolean hasFrames() {
            for (int b = nextBucket; b < endBucket; b++) {
                if (index.bucket(b).getInt() > 0) {
                    return true;
                }
            }
            return false;
        }

        /** Count the next frame's rows, and return whether any of them are wanted. */
        private boolean isWanted() {
            long first = nextRow;
            nextRow += frames.getInt(frames.position() + RowFile.ROWS_AT);
            return first < endRow && nextRow > firstRow;
        }

        private Frame frame() throws IOException {
            long offset = frames.getLong();
            int length = frames.getInt(frames.position());
            if (stored.length < length) {
                stored = new byte[length];
            }
            source.read(offset, stored, length);
            byte[] swap = before;
            before = plain;
            Frame frame = PackedFrame.header(frames, stored).open(swap, lz4);
            plain = frame.bytes();
            if (context != null) {
                context.taskMetrics().shuffleReadMetrics().incLocalBytesRead(length);
            }
            return frame;
        }
    }
}
