package onager.kernel;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;

/** An input of one task over the streaming exchange of its process. The plan carries names alone, as it would over a network. */
final class StreamInput implements ExchangeInput, SortedInput {
    /** The exchanges of this process by the name of their run. */
    static final Map EXCHANGES = new ConcurrentHashMap();

    private final String run;
    private final int stage;
    private final int task;
    private final int input;
    private final int partitions;

    StreamInput(String run, int stage, int task, int input, int partitions) {
        this.run = run;
        this.stage = stage;
        this.task = task;
        this.input = input;
        this.partitions = partitions;
    }

    static StreamExchange exchange(String run) {
        StreamExchange found = (StreamExchange) EXCHANGES.get(run);
        if (found == null) {
            throw new IllegalStateException("the exchange of run " + run + " is closed");
        }
        return found;
    }

    public int partitions() {
        return partitions;
    }

    public int streamed() {
        return input;
    }

    public ExchangeSource open(int partition, TaskContext context) {
        return exchange(run).source(stage, task, input, partition);
    }

    public int runs() {
        return exchange(run).producers(stage, input);
    }

    public ExchangeSource open(int sorted, long from, long to, TaskContext context) {
        return exchange(run).source(stage, task, input, ROWS, sorted);
    }
}
