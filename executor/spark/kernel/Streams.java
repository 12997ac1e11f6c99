package onager.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.rdd.RDD;

/** What an executor streams and reads of others' streams: its hub, the port before it, and the way out. */
final class Streams {
    private static final java.util.concurrent.atomic.AtomicInteger COUNT = new java.util.concurrent.atomic.AtomicInteger();

    private static final int MOST_CANCELLED = 1000;

    private final String name = "streams-" + COUNT.incrementAndGet();
    private final StreamHub hub;
    private final StreamServer server;
    private final StreamPeers peers;
    private final Map held = new java.util.concurrent.ConcurrentHashMap(); // what is read whole, and on behalf of which job group
    private final AtomicLong holding = new AtomicLong(); // bytes of what is being read whole
    private final Set cancelled = new LinkedHashSet(); // job groups; what is in it is guarded by it
    final String address;

    /** *spec* is JSON: {host, port, advertise, token_file, and what `StreamLimits` takes}; the last two may be empty. */
    Streams(Store store, JsonNode spec) throws IOException {
        String tokens = spec.get("token_file").asText();
        String advertised = spec.get("advertise").asText();
        StreamSecrets secrets = tokens.isEmpty() ? null : new StreamSecrets(tokens);
        hub = new StreamHub(name, store, new StreamLimits(spec));
        try {
            server = new StreamServer(hub, spec.get("host").asText(), spec.get("port").asInt(), secrets);
        } catch (Throwable e) {
            hub.close();
            throw new IOException("no port could be opened: " + Failures.text(e), e);
        }
        address = advertised.isEmpty() ? spec.get("reached").asText() + ":" + server.port() : advertised;
        peers = server.peers(name, hub, address);
    }

    /** Return an input that is read as a stream. */
    RemoteInput input(int index, JsonNode spec) {
        return new RemoteInput(name, index, spec);
    }

    /** Read all of *source*, on this thread, which cancelling the job group *group* stops; an IOException where that is too much. */
    HeldInput hold(RemoteSource source, String group) throws IOException, InterruptedException {
        List frames = new ArrayList();
        long bytes = 0L;
        held.put(source, group);
        try {
            if (isCancelled(group)) {
                source.stop();
            }
            for (PackedFrame frame = source.nextPacked(); frame != null; frame = source.nextPacked()) {
                bytes += frame.stored;
                if (holding.addAndGet((long) frame.stored) > hub.limits().heldBytes) {
                    throw new IOException("what is streamed for a broadcast or a subquery, " + bytes + " bytes and more, does not fit into the "
                            + hub.limits().heldBytes + " that an executor holds so");
                }
                frames.add(frame);
            }
            return HeldInput.packed(frames);
        } finally {
            holding.addAndGet(-bytes);
            held.remove(source);
            source.close();
        }
    }

    /** Tell the inputs of a bound stage which of their buckets have a single reader. */
    static void decide(RDD rdd, List inputs) {
        if (inputs.isEmpty()) {
            return;
        }
        Map readers = new HashMap();
        for (int i = 0; i < inputs.size(); i++) {
            RemoteInput input = (RemoteInput) inputs.get(i);
            readers.put(Integer.valueOf(input.streamed()), new int[input.partitions()]);
        }
        for (int p = 0; p < rdd.getNumPartitions(); p++) {
            Iterator each;
            try {
                each = Reads.of(rdd, p).entrySet().iterator();
            } catch (IllegalStateException e) {
                return; // who reads what does not show: all of it is kept
            }
            while (each.hasNext()) {
                Map.Entry entry = (Map.Entry) each.next();
                int[] counts = (int[]) readers.get(entry.getKey());
                List buckets = (List) entry.getValue();
                for (int b = 0; b < buckets.size(); b++) {
                    counts[((Integer) buckets.get(b)).intValue()]++;
                }
            }
        }
        for (int i = 0; i < inputs.size(); i++) {
            RemoteInput input = (RemoteInput) inputs.get(i);
            input.decide((int[]) readers.get(Integer.valueOf(input.streamed())));
        }
    }

    /** Return the names of a stage's executions by partition, as Integer to String; *spec* as for `Kernel.submit`. */
    private static Map names(JsonNode spec) {
        Map tasks = new HashMap();
        for (int i = 0; i < spec.get("partitions").size(); i++) {
            int partition = ((JsonNode) spec.get("partitions").get(i)).asInt();
            int attempt = ((JsonNode) spec.get("task_attempts").get(i)).asInt();
            String task = StreamRequest.taskName(spec.get("job").asText(), spec.get("stage").asInt(), spec.get("stage_attempt").asInt(), partition, attempt);
            tasks.put(Integer.valueOf(partition), task);
        }
        return tasks;
    }

    /** Know of tasks that will begin here; *spec* as for `Kernel.submit`. */
    void expect(JsonNode spec) {
        Iterator each = names(spec).values().iterator();
        while (each.hasNext()) {
            hub.expect((String) each.next());
        }
    }

    /** Tell readers of tasks that were expected that they will not begin. */
    void giveUp(JsonNode spec, String why) {
        Iterator each = names(spec).values().iterator();
        while (each.hasNext()) {
            String task = (String) each.next();
            hub.giveUp(task, "task " + task + " could not begin: " + why);
        }
    }

    /** Return where a stage's tasks put what they stream; *spec* as for `Kernel.submit`. */
    HubOutput output(JsonNode spec) {
        return new HubOutput(name, spec.get("directory").asText(), names(spec), spec.get("buckets").asInt());
    }

    private boolean isCancelled(String group) {
        synchronized (cancelled) {
            return cancelled.contains(group);
        }
    }

    /** Stop what is read whole on behalf of a job group, now or later. */
    void cancelGroup(String group) {
        synchronized (cancelled) {
            cancelled.add(group);
            if (cancelled.size() > MOST_CANCELLED) {
                cancelled.remove(cancelled.iterator().next());
            }
        }
        Iterator each = held.entrySet().iterator();
        while (each.hasNext()) {
            Map.Entry entry = (Map.Entry) each.next();
            if (group.equals(entry.getValue())) {
                ((RemoteSource) entry.getKey()).stop();
            }
        }
    }

    void closeJob(String job) {
        hub.closeJob(job);
    }

    long[] use() {
        return hub.use();
    }

    void close() {
        peers.close();
        hub.close();
        server.close();
    }
}
