package onager.stream;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import onager.failure.Failures;
import onager.rows.ExchangeOutput;
import onager.rows.HeldInput;
import onager.rows.InputSpec;
import onager.rows.PackedFrame;
import onager.store.Store;

/** The streams of an executor: its hub, the server of the hub, and the connections to other executors. */
public final class Streams {
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final int MAX_CANCELLED = 1000;

    private final String name = "streams-" + COUNT.incrementAndGet();
    private final StreamHub hub;
    private final StreamServer server;
    private final StreamExecutors executors;
    private final Map<RemoteSource, String> held = new ConcurrentHashMap<>(); // sources that are read as a whole, with their job groups
    private final AtomicLong holding = new AtomicLong(); // bytes of streams that are being read as a whole
    private final Set<String> cancelled = new LinkedHashSet<>(); // job groups; guarded by itself
    private final String address;

    /** *spec* is JSON: {host, port, reached, advertise, token_file} and the fields of `StreamLimits`; the last two may be empty. */
    public Streams(Store store, JsonNode spec) throws IOException {
        String tokens = spec.get("token_file").asText();
        String advertised = spec.get("advertise").asText();
        StreamSecrets secrets = tokens.isEmpty() ? null : new StreamSecrets(tokens);
        hub = new StreamHub(store, new StreamLimits(spec));
        try {
            server = new StreamServer(hub, spec.get("host").asText(), spec.get("port").asInt(), secrets);
        } catch (Throwable e) {
            hub.close();
            throw new IOException("no port could be opened: " + Failures.text(e), e);
        }
        address = advertised.isEmpty() ? spec.get("reached").asText() + ":" + server.port() : advertised;
        executors = server.executors(name, hub, address);
    }

    /** Return the address under which others reach it. */
    public String address() {
        return address;
    }

    /** Return an input that is read as a stream. */
    public RemoteInput input(int index, InputSpec spec) {
        return new RemoteInput(name, index, spec);
    }

    /** Read all of *source* on this thread, until the job group *group* is cancelled; throws an IOException if it is too large. */
    public HeldInput hold(RemoteSource source, String group) throws IOException, InterruptedException {
        var frames = new ArrayList<PackedFrame>();
        long bytes = 0L;
        held.put(source, group);
        try {
            if (isCancelled(group)) {
                source.stop();
            }
            for (PackedFrame frame = source.nextPacked(); frame != null; frame = source.nextPacked()) {
                bytes += frame.stored();
                if (holding.addAndGet(frame.stored()) > hub.limits().heldBytes) {
                    throw new IOException("the streamed input of a broadcast or a subquery, of at least " + bytes + " bytes, does not fit the "
                            + hub.limits().heldBytes + " bytes that an executor holds for such inputs");
                }
                frames.add(frame);
            }
            return new HeldInput(frames);
        } finally {
            holding.addAndGet(-bytes);
            held.remove(source);
            source.close();
        }
    }

    /** Announce tasks that will start here. */
    public void expect(StreamedTasks tasks) {
        tasks.names().values().forEach(hub::expect);
    }

    /** Tell the readers of expected tasks that these will not start. */
    public void giveUp(StreamedTasks tasks, String why) {
        tasks.names().values().forEach(task -> hub.giveUp(task, "task " + task + " could not start: " + why));
    }

    /** Return the output of a stage's tasks that stream; *directory*: the stage's, for frames that do not fit memory. */
    public ExchangeOutput output(StreamedTasks tasks, String directory, int buckets) {
        return new HubOutput(name, directory, tasks.names(), buckets);
    }

    private boolean isCancelled(String group) {
        synchronized (cancelled) {
            return cancelled.contains(group);
        }
    }

    /** Stop the current and future reads of whole streams for a job group. */
    public void cancelGroup(String group) {
        synchronized (cancelled) {
            cancelled.add(group);
            if (cancelled.size() > MAX_CANCELLED) {
                cancelled.remove(cancelled.iterator().next());
            }
        }
        held.forEach((source, of) -> {
            if (group.equals(of)) {
                source.stop();
            }
        });
    }

    public void closeJob(String job) {
        hub.closeJob(job);
    }

    /** Return {bytes in memory, bytes ever written to files, tasks that started, requests that wait}. */
    public long[] use() {
        return hub.use();
    }

    public void close() {
        executors.close();
        hub.close();
        server.close();
    }
}
