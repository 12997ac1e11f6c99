package onager.kernel;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.locks.ReentrantLock;

/** The stages of a streaming exchange, their tasks, what they write and what they read. Guarded by the exchange's lock. */
final class StreamTopology {
    private final ReentrantLock lock;
    private final int capacityFrames;
    private final long capacityBytes;
    private final Map tasks = new TreeMap(); // by stage and partition
    private final Map channels = new TreeMap(); // by stage, then [task][bucket]
    private final Map inputs = new TreeMap(); // by stage: its links
    private final Map readers = new TreeMap(); // by stage: the links of those that read it
    private final Map sources = new TreeMap(); // by stage and input: the stage that is read
    private final List all = new ArrayList();

    /** *capacityFrames*, *capacityBytes*: of each channel. */
    StreamTopology(ReentrantLock lock, int capacityFrames, long capacityBytes) {
        this.lock = lock;
        this.capacityFrames = capacityFrames;
        this.capacityBytes = capacityBytes;
    }

    private static String key(int a, int b) {
        return String.format("%08d/%08d", new Object[] {Integer.valueOf(a), Integer.valueOf(b)});
    }

    private static Integer number(int n) {
        return Integer.valueOf(n);
    }

    void addStage(int stage, int partitions, int buckets) {
        List links = new ArrayList();
        StreamChannel[][] made = new StreamChannel[partitions][buckets];
        for (int i = 0; i < partitions; i++) {
            StreamTask task = new StreamTask(stage, i, lock.newCondition());
            tasks.put(key(stage, i), task);
            all.add(task);
            for (int b = 0; b < buckets; b++) {
                made[i][b] = new StreamChannel(task, b, capacityFrames, capacityBytes, links);
            }
        }
        channels.put(number(stage), made);
        readers.put(number(stage), links);
        inputs.put(number(stage), new ArrayList());
    }

    void addInput(int stage, int input, int producer) {
        StreamLink link = new StreamLink(input);
        for (int i = 0; i < all.size(); i++) {
            StreamTask task = (StreamTask) all.get(i);
            if (task.stage == stage) {
                link.undecided.add(task);
            }
        }
        ((List) readers.get(number(producer))).add(link);
        ((List) inputs.get(number(stage))).add(link);
        sources.put(key(stage, input), number(producer));
    }

    /** Every task. */
    List tasks() {
        return all;
    }

    /** Every channel. */
    List channels() {
        List found = new ArrayList();
        for (int i = 0; i < all.size(); i++) {
            StreamTask task = (StreamTask) all.get(i);
            found.addAll(java.util.Arrays.asList(outputs(task.stage, task.partition)));
        }
        return found;
    }

    StreamTask task(int stage, int partition) {
        StreamTask task = (StreamTask) tasks.get(key(stage, partition));
        if (task == null) {
            throw new IllegalArgumentException("there is no task " + partition + " of stage " + stage);
        }
        return task;
    }

    /** What a task writes, by bucket; nothing of the last stage. */
    StreamChannel[] outputs(int stage, int partition) {
        return ((StreamChannel[][]) channels.get(number(stage)))[partition];
    }

    /** What an input of a stage reads, by task and bucket. */
    StreamChannel[][] read(int stage, int input) {
        return (StreamChannel[][]) channels.get(sources.get(key(stage, input)));
    }

    /** How many buckets the tasks of a stage write. */
    int buckets(int stage) {
        StreamChannel[][] made = (StreamChannel[][]) channels.get(number(stage));
        return made.length == 0 ? 1 : made[0].length;
    }

    /** How many buckets an input has. */
    int bucketsRead(int stage, int input) {
        return buckets(((Integer) sources.get(key(stage, input))).intValue());
    }

    /** The links of what a stage reads. */
    List inputs(int stage) {
        return (List) inputs.get(number(stage));
    }

    StreamLink input(int stage, int input) {
        List links = inputs(stage);
        for (int i = 0; i < links.size(); i++) {
            if (((StreamLink) links.get(i)).input == input) {
                return (StreamLink) links.get(i);
            }
        }
        throw new IllegalArgumentException("stage " + stage + " has no input " + input);
    }
}
