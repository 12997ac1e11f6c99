package onager.stream;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import onager.rows.ExchangeInput;
import onager.rows.ExchangeSource;
import onager.rows.InputSpec;
import onager.rows.SortedInput;
import org.apache.spark.TaskContext;

/** The streamed output of a stage, as the tasks of another stage read it from executors. */
@SuppressWarnings("serial")
public final class RemoteInput implements ExchangeInput, SortedInput {
    private final String executors;
    private final int input;
    private final String[] tasks;
    private final String[] addresses;
    private final int buckets;
    private final boolean isSoleReader;
    private final BitSet drained = new BitSet();

    /** *executors*: the name of the `StreamExecutors`; *input*: its index in the stage's inputs. */
    RemoteInput(String executors, int input, InputSpec spec) {
        this.executors = executors;
        this.input = input;
        this.tasks = new String[spec.writers()];
        for (int i = 0; i < tasks.length; i++) {
            tasks[i] = StreamRequest.taskName(spec.job(), spec.stage(), spec.attempt(), i, spec.attempts()[i]);
        }
        this.addresses = spec.addresses();
        this.buckets = spec.ordering() != null ? BUCKETS : spec.partitions();
        this.isSoleReader = spec.soleReader();
    }

    @Override
    public int partitions() {
        return buckets;
    }

    @Override
    public int streamed() {
        return input;
    }

    /** Set *readers*, the number of the stage's partitions that read each bucket: frames with one reader may be dropped once read. */
    public void decide(int[] readers) {
        for (int b = 0; b < readers.length && isSoleReader; b++) {
            drained.set(b, readers[b] == 1);
        }
    }

    @Override
    public ExchangeSource open(int partition, TaskContext context) {
        return source(partition, drained.get(partition), buckets == 1, context); // a gathered input may be sorted
    }

    /** Return the producers' only bucket, which others may read, too. */
    public RemoteSource whole() {
        return source(0, false, true, null);
    }

    @Override
    public int runs() {
        return tasks.length;
    }

    @Override
    public ExchangeSource open(int run, long from, long to, TaskContext context) {
        StreamExecutors through = StreamExecutors.of(executors);
        var channel = List.of(new RemoteChannel(addresses[run], tasks[run], ROWS, from));
        long share = through.limits().prefetchBytes / tasks.length; // all runs are read at the same time
        return new RemoteSource(through, channel, buckets, false, true, share, context);
    }

    /** Return the sampled keys of all runs, one run after the other; others read them, too. */
    public RemoteSource samples() {
        return source(SAMPLES, false, true, null);
    }

    private RemoteSource source(int bucket, boolean drains, boolean inOrder, TaskContext context) {
        StreamExecutors through = StreamExecutors.of(executors);
        var channels = new ArrayList<RemoteChannel>();
        for (int i = 0; i < tasks.length; i++) {
            channels.add(new RemoteChannel(addresses[i], tasks[i], bucket, 0L));
        }
        return new RemoteSource(through, channels, buckets, drains, inOrder, through.limits().prefetchBytes, context);
    }
}
