package onager.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskContext;

/** An input that was read before, whole and into memory: what a broadcast or a subquery is made of. */
final class HeldInput implements ExchangeInput {
    private final ArrayList frames = new ArrayList();

    private HeldInput() {}

    static HeldInput drain(ExchangeSource source) throws java.io.IOException, InterruptedException {
        HeldInput all = new HeldInput();
        for (Frame frame = source.next(); frame != null; frame = source.next()) {
            all.frames.add(frame.copy());
        }
        source.close();
        return all;
    }

    public int partitions() {
        return 1;
    }

    public int streamed() {
        return -1;
    }

    public ExchangeSource open(int partition, TaskContext context) {
        return new Source(frames);
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
