package onager.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.apache.spark.TaskContext;

/** The output of a stage that runs, or has run, as the tasks of another one read it from the executors that have it. */
public final class RemoteInput implements ExchangeInput, SortedInput {
    private final String peers;
    private final int input;
    private final String[] tasks;
    private final String[] addresses;
    private final int buckets;
    private final boolean isAlone;
    private BitSet drained = new BitSet();

    /**
     * *peers*: by whom to ask; *input*: its place among the stage's; *spec*: {job, stage, attempt, attempts: [..], addresses: [..],
     * partitions, alone}; *alone*: nothing else of the job reads that stage. With *ordering* its output is sorted runs, and partitions are
     * ranges of them.
     */
    RemoteInput(String peers, int input, JsonNode spec) {
        int n = spec.get("attempts").size();
        this.peers = peers;
        this.input = input;
        this.tasks = new String[n];
        this.addresses = new String[n];
        for (int i = 0; i < n; i++) {
            tasks[i] = StreamRequest.taskName(spec.get("job").asText(), spec.get("stage").asInt(), spec.get("attempt").asInt(), i,
                    ((JsonNode) spec.get("attempts").get(i)).asInt());
            addresses[i] = ((JsonNode) spec.get("addresses").get(i)).asText();
        }
        this.buckets = spec.has("ordering") ? BUCKETS : spec.get("partitions").asInt();
        this.isAlone = spec.get("alone").asBoolean();
    }

    public int partitions() {
        return buckets;
    }

    public int streamed() {
        return input;
    }

    /** Take *readers*, how many of the stage's partitions read each bucket: what only one reads may go as it does. */
    void decide(int[] readers) {
        for (int b = 0; b < readers.length && isAlone; b++) {
            drained.set(b, readers[b] == 1);
        }
    }

    public ExchangeSource open(int partition, TaskContext context) {
        return source(partition, drained.get(partition), buckets == 1, context); // what is gathered may have been sorted before
    }

    /** Return what there is in the one bucket that its producers have; others may read it, too. */
    RemoteSource whole() {
        return source(0, false, true, null);
    }

    public int runs() {
        return tasks.length;
    }

    public ExchangeSource open(int run, long from, long to, TaskContext context) {
        StreamPeers through = StreamPeers.of(peers);
        List channel = new ArrayList();
        channel.add(new RemoteChannel(addresses[run], tasks[run], ROWS, from));
        long share = through.limits().prefetchBytes / tasks.length; // all runs are read at once
        return new RemoteSource(through, through.limits(), channel, buckets, false, true, share, context);
    }

    /** Return the keys that were sampled of all runs, one run after the other; others read them, too. */
    RemoteSource samples() {
        return source(SAMPLES, false, true, null);
    }

    private RemoteSource source(int bucket, boolean drains, boolean inOrder, TaskContext context) {
        StreamPeers through = StreamPeers.of(peers);
        List channels = new ArrayList();
        for (int i = 0; i < tasks.length; i++) {
            channels.add(new RemoteChannel(addresses[i], tasks[i], bucket, 0L));
        }
        return new RemoteSource(through, through.limits(), channels, buckets, drains, inOrder, through.limits().prefetchBytes, context);
    }
}
