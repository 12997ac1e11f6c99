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
 * An input that was read into memory as a whole: the input of a broadcast or a subquery, or one that is read twice. The tasks that read it
 * run in this process, so it is not serialised with them, but found by its number.
 */
@SuppressWarnings("serial")
public final class HeldInput implements ExchangeInput, SortedInput {
    private static final Map<Long, WeakReference<HeldInput>> HELD = new HashMap<>(); // by number; guarded by itself
    private static long count = 0;

    private final long number;
    private final int partitions;
    /** By partition or run: functions that return frames; null after release. */
    private transient volatile List<List<Opened>> frames;

    /** A frame that is unpacked for each reader, which may modify it. */
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

    /** Return the held input with this number after deserialisation. */
    private Object readResolve() throws InvalidObjectException {
        synchronized (HELD) {
            var held = HELD.get(number);
            HeldInput found = held == null ? null : held.get();
            if (found == null) {
                throw new InvalidObjectException("the input that was held for this task was released, or belongs to another process");
            }
            return found;
        }
    }

    /** Read every partition to its end, one after another. */
    public static HeldInput drain(ExchangeSource[] partitions) throws IOException, InterruptedException {
        var all = new ArrayList<List<Opened>>();
        int open = 0; // the partitions before it are closed
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

    /** Hold *frames* as the only partition. */
    public static HeldInput packed(List<PackedFrame> frames) {
        var lz4 = LZ4Factory.fastestInstance().safeDecompressor();
        return new HeldInput(List.of(frames.stream().map(each -> (Opened) () -> each.open(new byte[0], lz4)).toList()));
    }

    /** Hold *frames* as *partition* of *partitions*; the others are empty. */
    public static HeldInput only(List<Frame> frames, int partition, int partitions) {
        var all = new ArrayList<List<Opened>>();
        for (int i = 0; i < partitions; i++) {
            all.add(i == partition ? frames.stream().map(each -> (Opened) each::copy).toList() : List.of());
        }
        return new HeldInput(all);
    }

    /** Release the memory, once all that needed the input is built. Later reads throw. */
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
            throw new IllegalStateException("the input that was held for this stage was released when the stage had been bound");
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
