package onager.rows;

import java.io.IOException;
import java.io.InvalidObjectException;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import org.apache.spark.TaskContext;

/**
 * An input of one partition that was read into memory as a whole: the input of a broadcast or a subquery. The tasks that read it run in
 * this process, so it is not serialised with them, but found by its number.
 */
@SuppressWarnings("serial")
public final class HeldInput implements ExchangeInput {
    private static final Map<Long, WeakReference<HeldInput>> HELD = new HashMap<>(); // by number; guarded by itself
    private static long count = 0;

    private final long number;
    /** Each reader unpacks them; null after release. */
    private transient volatile List<PackedFrame> frames;

    public HeldInput(List<PackedFrame> frames) {
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

    /** Release the memory, once all that needed the input is built. Later reads throw. */
    public void release() {
        frames = null;
    }

    @Override
    public int partitions() {
        return 1;
    }

    @Override
    public int streamed() {
        return -1;
    }

    @Override
    public ExchangeSource open(int partition, TaskContext context) {
        List<PackedFrame> there = frames;
        if (there == null) {
            throw new IllegalStateException("the input that was held for this stage was released when the stage had been bound");
        }
        return new Source(there.iterator());
    }

    private static final class Source implements ExchangeSource {
        private final LZ4SafeDecompressor lz4 = LZ4Factory.fastestInstance().safeDecompressor();
        private Iterator<PackedFrame> left;

        Source(Iterator<PackedFrame> frames) {
            this.left = frames;
        }

        @Override
        public Frame next() throws IOException {
            return left.hasNext() ? left.next().open(new byte[0], lz4) : null;
        }

        @Override
        public void close() {
            left = List.<PackedFrame>of().iterator();
        }
    }
}
