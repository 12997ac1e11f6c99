package onager.testing;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Stream;

/** The stages of a streaming exchange, their tasks, what they write and what they read. Guarded by the exchange's lock. */
final class StreamTopology {
    private final ReentrantLock lock;
    private final int capacityFrames;
    private final long capacityBytes;
    private final Map<Place, StreamTask> tasks = new HashMap<>(); // by stage and partition
    private final Map<Integer, StreamChannel[][]> channels = new HashMap<>(); // by stage, then [task][bucket]
    private final Map<Integer, List<StreamLink>> inputs = new HashMap<>(); // by stage: its links
    private final Map<Integer, List<StreamLink>> readers = new HashMap<>(); // by stage: the links of those that read it
    private final Map<Place, Integer> sources = new HashMap<>(); // by stage and input: the stage that is read
    private final List<StreamTask> all = new ArrayList<>();

    /** *capacityFrames*, *capacityBytes*: of each channel. */
    StreamTopology(ReentrantLock lock, int capacityFrames, long capacityBytes) {
        this.lock = lock;
        this.capacityFrames = capacityFrames;
        this.capacityBytes = capacityBytes;
    }

    /** A stage, and its partition or input. */
    private record Place(int stage, int number) {}

    void addStage(int stage, int partitions, int buckets) {
        var links = new ArrayList<StreamLink>();
        StreamChannel[][] made = new StreamChannel[partitions][buckets];
        for (int i = 0; i < partitions; i++) {
            StreamTask task = new StreamTask(stage, i, lock.newCondition());
            tasks.put(new Place(stage, i), task);
            all.add(task);
            for (int b = 0; b < buckets; b++) {
                made[i][b] = new StreamChannel(task, b, capacityFrames, capacityBytes, links);
            }
        }
        channels.put(stage, made);
        readers.put(stage, links);
        inputs.put(stage, new ArrayList<>());
    }

    void addInput(int stage, int input, int producer) {
        StreamLink link = new StreamLink(input);
        all.stream().filter(task -> task.stage == stage).forEach(link.undecided::add);
        readers.get(producer).add(link);
        inputs.get(stage).add(link);
        sources.put(new Place(stage, input), producer);
    }

    /** Every task. */
    List<StreamTask> tasks() {
        return all;
    }

    /** Every channel. */
    List<StreamChannel> channels() {
        return all.stream().flatMap(task -> Stream.of(outputs(task.stage, task.partition))).toList();
    }

    StreamTask task(int stage, int partition) {
        StreamTask task = tasks.get(new Place(stage, partition));
        if (task == null) {
            throw new IllegalArgumentException("there is no task " + partition + " of stage " + stage);
        }
        return task;
    }

    /** What a task writes, by bucket; nothing of the last stage. */
    StreamChannel[] outputs(int stage, int partition) {
        return channels.get(stage)[partition];
    }

    /** What an input of a stage reads, by task and bucket. */
    StreamChannel[][] read(int stage, int input) {
        return channels.get(sources.get(new Place(stage, input)));
    }

    /** How many buckets the tasks of a stage write. */
    int buckets(int stage) {
        StreamChannel[][] made = channels.get(stage);
        return made.length == 0 ? 1 : made[0].length;
    }

    /** How many buckets an input has. */
    int bucketsRead(int stage, int input) {
        return buckets(sources.get(new Place(stage, input)));
    }

    /** The links of what a stage reads. */
    List<StreamLink> inputs(int stage) {
        return inputs.get(stage);
    }

    StreamLink input(int stage, int input) {
        return inputs(stage).stream().filter(link -> link.input == input).findFirst()
                .orElseThrow(() -> new IllegalArgumentException("stage " + stage + " has no input " + input));
    }
}
