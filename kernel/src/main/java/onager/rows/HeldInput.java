package onager.rows;

import java.io.IOException;
import java.io.InvalidObjectException;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import net.jpountz.lz4.LZ4Factory;
import org.apache.spark.TaskContext;

/**
 * An input that was read before, whole and into memory: what a broadcast or a subquery is made of, or what is read twice. The tasks that
 * read it run in this process, so it is not sent along with them, but found again by its number.
 */
@SuppressWarnings("serial")
public final class HeldInput implements ExchangeInput, SortedInput {
    private static final Map<Long, WeakReference<HeldInput>> HELD = new HashMap<>(); // by number; guarded by itself
    private static long count = 0;

    private final long number;
    private final int partitions;
    /** By partition, or by run: each gives its frames anew; null: given back. */
    private transient volatile List<List<Opened>> frames;

    /** A frame that is made when it is read: its reader may do with it what it wants. */
    private interface Opened {
        Frame open() throws IOException;
    }

    private HeldInput(List<List<Opened>> frames) {
        this.partitions = frames.size();
        this.frames = frames;
        synchronized (HELD) {
            this.number = ++count;
            HELD.values().removeIf(each -> each.get() == null);
            HELD.put(number, new WeakReference<>(this));
        }
    }

    /** What is read in its place. */
    private Object readResolve() throws InvalidObjectException {
        synchronized (HELD) {
            var held = HELD.get(number);
            HeldInput found = held == null ? null : held.get();
            if (found == null) {
                throw new InvalidObjectException("what was read whole for this task is held no more, or by another process");
            }
            return found;
        }
    }

    /** Read every partition to its end, one after another. */
    public static HeldInput drain(ExchangeSource[] partitions) throws IOException, InterruptedException {
        var all = new ArrayList<List<Opened>>();
        int open = 0; // those before are closed
        try {
            for (; open < partitions.length; open++) {
                var read = new ArrayList<Opened>();
                for (Frame frame = partitions[open].next(); frame != null; frame = partitions[open].next()) {
                    read.add(frame.copy()::copy);
                }
                all.add(read);
                partitions[open].close();
            }
        } finally {
            for (; open < partitions.length; open++) {
                partitions[open].close();
            }
        }
        return new HeldInput(all);
    }

    /** Hold *frames* as the one partition. */
    public static HeldInput packed(List<PackedFrame> frames) {
        var lz4 = LZ4Factory.fastestInstance().safeDecompressor();
        return new HeldInput(List.of(frames.stream().map(each -> (Opened) () -> each.open(new byte[0], lz4)).toList()));
    }

    /** Hold *frames* as one of *partitions* partitions; the others are empty. */
    public static HeldInput only(List<Frame> frames, int partition, int partitions) {
        var all = new ArrayList<List<Opened>>();
        for (int i = 0; i < partitions; i++) {
            all.add(i == partition ? frames.stream().map(each -> (Opened) each::copy).toList() : List.of());
        }
        return new HeldInput(all);
    }

    /** Give the memory back: all that was to be made of it is made. Who reads it nevertheless fails. */
    public void release() {
        frames = null;
    }

    @Override
    public int partitions() {
        return partitions;
    }

    @Override
    public int streamed() {
        return -1;
    }

    @Override
    public ExchangeSource open(int partition, TaskContext context) {
        List<List<Opened>> there = frames;
        if (there == null) {
            throw new IllegalStateException("what was read whole for this stage was given back when the stage had been bound");
        }
        return new Source(there.get(partition).iterator());
    }

    @Override
    public int runs() {
        return partitions;
    }

    @Override
    public ExchangeSource open(int run, long from, long to, TaskContext context) {
        return open(run, context);
    }

    private static final class Source implements ExchangeSource {
        private Iterator<Opened> left;

        Source(Iterator<Opened> frames) {
            this.left = frames;
        }

        @Override
        public Frame next() throws IOException {
            return left.hasNext() ? left.next().open() : null;
        }

        @Override
        public void close() {
            left = List.<Opened>of().iterator();
        }
    }
}
