package onager.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskContext;

/** An input that was read before, whole and into memory: what a broadcast or a subquery is made of, or what is read twice. */
final class HeldInput implements ExchangeInput, SortedInput {
    private final List[] frames; // by partition, or by run

    private HeldInput(int partitions) {
        this.frames = new List[partitions];
        for (int i = 0; i < partitions; i++) {
            frames[i] = new ArrayList();
        }
    }

    /** Read every partition to its end, one after another. */
    static HeldInput drain(ExchangeSource[] partitions) throws java.io.IOException, InterruptedException {
        HeldInput all = new HeldInput(partitions.length);
        for (int i = 0; i < partitions.length; i++) {
            for (Frame frame = partitions[i].next(); frame != null; frame = partitions[i].next()) {
                all.frames[i].add(frame.copy());
            }
            partitions[i].close();
        }
        return all;
    }

    /** Hold *frames* as one of *partitions* partitions; the others are empty. */
    static HeldInput only(List frames, int partition, int partitions) {
        HeldInput made = new HeldInput(partitions);
        made.frames[partition].addAll(frames);
        return made;
    }

    public int partitions() {
        return frames.length;
    }

    public int streamed() {
        return -1;
    }

    public ExchangeSource open(int partition, TaskContext context) {
        return new Source(frames[partition]);
    }

    public int runs() {
        return frames.length;
    }

    public ExchangeSource open(int run, long from, long to, TaskContext context) {
        return open(run, context);
    }

    private static final class Source implements ExchangeSource {
        private final List frames;
        private int next = 0;

        Source(List frames) {
            this.frames = frames;
        }

        public Frame next() {
            return next < frames.size() ? (Frame) frames.get(next++) : null;
        }

        public void close() {
            next = frames.size();
        }
    }
}
