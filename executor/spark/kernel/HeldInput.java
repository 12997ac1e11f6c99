package onager.kernel;

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
final class HeldInput implements ExchangeInput, SortedInput {
    private static final Map HELD = new HashMap(); // number to WeakReference; guarded by itself
    private static long count = 0;

    private final long number;
    private final int partitions;
    private transient volatile List[] frames; // by partition, or by run: each a Frame or a PackedFrame; null: given back

    private HeldInput(int partitions) {
        this.partitions = partitions;
        this.frames = new List[partitions];
        for (int i = 0; i < partitions; i++) {
            frames[i] = new ArrayList();
        }
        synchronized (HELD) {
            this.number = ++count;
            Iterator each = HELD.values().iterator();
            while (each.hasNext()) {
                if (((WeakReference) each.next()).get() == null) {
                    each.remove();
                }
            }
            HELD.put(Long.valueOf(number), new WeakReference(this));
        }
    }

    /** What is read in its place. Not private: Janino makes something else of private methods. */
    Object readResolve() throws InvalidObjectException {
        synchronized (HELD) {
            WeakReference held = (WeakReference) HELD.get(Long.valueOf(number));
            Object found = held == null ? null : held.get();
            if (found == null) {
                throw new InvalidObjectException("what was read whole for this task is held no more, or by another process");
            }
            return found;
        }
    }

    /** Read every partition to its end, one after another. */
    static HeldInput drain(ExchangeSource[] partitions) throws IOException, InterruptedException {
        HeldInput all = new HeldInput(partitions.length);
        int open = 0; // those before are closed
        try {
            for (; open < partitions.length; open++) {
                for (Frame frame = partitions[open].next(); frame != null; frame = partitions[open].next()) {
                    all.frames[open].add(frame.copy());
                }
                partitions[open].close();
            }
        } finally {
            for (; open < partitions.length; open++) {
                partitions[open].close();
            }
        }
        return all;
    }

    /** Hold `PackedFrame`s as the one partition. */
    static HeldInput packed(List frames) {
        return only(frames, 0, 1);
    }

    /** Hold *frames* as one of *partitions* partitions; the others are empty. */
    static HeldInput only(List frames, int partition, int partitions) {
        HeldInput made = new HeldInput(partitions);
        made.frames[partition].addAll(frames);
        return made;
    }

    /** Give the memory back: all that was to be made of it is made. Who reads it nevertheless fails. */
    void release() {
        frames = null;
    }

    public int partitions() {
        return partitions;
    }

    public int streamed() {
        return -1;
    }

    public ExchangeSource open(int partition, TaskContext context) {
        List[] there = frames;
        if (there == null) {
            throw new IllegalStateException("what was read whole for this stage was given back when the stage had been bound");
        }
        return new Source(there[partition]);
    }

    public int runs() {
        return partitions;
    }

    public ExchangeSource open(int run, long from, long to, TaskContext context) {
        return open(run, context);
    }

    private static final class Source implements ExchangeSource {
        private static final byte[] NONE = new byte[0];

        private final List frames;
        private int next = 0;

        Source(List frames) {
            this.frames = frames;
        }

        public Frame next() throws IOException {
            if (next >= frames.size()) {
                return null;
            }
            Object frame = frames.get(next++);
            return frame instanceof Frame ? ((Frame) frame).copy() : ((PackedFrame) frame).open(NONE, LZ4Factory.fastestInstance().safeDecompressor());
        }

        public void close() {
            next = frames.size();
        }
    }
}
