package onager.testing;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import onager.rows.ExchangeInput;
import onager.rows.ExchangeSource;
import onager.rows.SortedInput;
import org.apache.spark.TaskContext;

/** An input of one task over the streaming exchange of its process. The plan carries names alone, as it would over a network. */
@SuppressWarnings("serial")
final class StreamInput implements ExchangeInput, SortedInput {
    /** The exchanges of this process by the name of their run. */
    static final Map<String, StreamExchange> EXCHANGES = new ConcurrentHashMap<>();

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
        StreamExchange found = EXCHANGES.get(run);
        if (found == null) {
            throw new IllegalStateException("the exchange of run " + run + " is closed");
        }
        return found;
    }

    @Override
    public int partitions() {
        return partitions;
    }

    @Override
    public int streamed() {
        return input;
    }

    @Override
    public ExchangeSource open(int partition, TaskContext context) {
        return exchange(run).source(stage, task, input, partition);
    }

    @Override
    public int runs() {
        return exchange(run).producers(stage, input);
    }

    @Override
    public ExchangeSource open(int sorted, long from, long to, TaskContext context) {
        return exchange(run).source(stage, task, input, ROWS, sorted);
    }
}
