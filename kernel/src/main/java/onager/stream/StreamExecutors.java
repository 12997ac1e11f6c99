package onager.stream;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientFactory;

/** Sends requests to the stream servers of other executors, and to this executor's hub. */
final class StreamExecutors {
    private static final Map<String, StreamExecutors> EXECUTORS = new ConcurrentHashMap<>();
    private static final int MAX_DROPS = 100_000;

    private final String name;
    private final StreamHub hub;
    private final String here;
    private final TransportClientFactory clients;
    private final LinkedBlockingQueue<RemoteChannel> drops = new LinkedBlockingQueue<>(MAX_DROPS);
    private final Thread dropper = new Thread(this::sendDrops, "onager-stream-dropper");
    private volatile boolean isClosed = false;

    /** *here*: the address under which others reach *hub*. */
    StreamExecutors(String name, StreamHub hub, String here, TransportClientFactory clients) {
        this.name = name;
        this.hub = hub;
        this.here = here;
        this.clients = clients;
        EXECUTORS.put(name, this);
        dropper.setDaemon(true);
        dropper.start();
    }

    static StreamExecutors of(String name) {
        StreamExecutors found = EXECUTORS.get(name);
        if (found == null) {
            throw new UncheckedIOException(new IOException("the streams of this executor are closed"));
        }
        return found;
    }

    StreamHub hub() {
        return hub;
    }

    StreamLimits limits() {
        return hub.limits();
    }

    boolean isHere(String address) {
        return address.equals(here);
    }

    /** Send *request*; unless this throws, *reply* gets the result, once. It waits only for the connection. */
    void ask(String address, StreamRequest request, StreamReply reply) throws IOException, InterruptedException {
        if (isHere(address)) {
            hub.ask(request, reply);
            return;
        }
        client(address).sendRpc(request.encode(), new RpcResponseCallback() {
            @Override
            public void onSuccess(ByteBuffer response) {
                StreamAnswer answer;
                try {
                    answer = StreamAnswer.decode(response);
                } catch (Throwable e) { // for example out of memory: the reader must get an answer, and may ask again
                    reply.lose(new IOException("an answer cannot be read", e));
                    return;
                }
                reply.answer(answer);
            }

            @Override
            public void onFailure(Throwable e) {
                reply.lose(e);
            }
        });
    }

    private TransportClient client(String address) throws IOException, InterruptedException {
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, colon);
        if (host.startsWith("[")) {
            host = host.substring(1, host.length() - 1);
        }
        return clients.createClient(host, Integer.parseInt(address.substring(colon + 1)));
    }

    /** Tell the producers of *channels*, asynchronously, that nobody reads them any more; they end even if the message is lost. */
    void drop(List<RemoteChannel> channels) {
        channels.forEach(drops::offer);
    }

    private void sendDrops() {
        while (!isClosed) {
            try {
                RemoteChannel channel = drops.take();
                if (isHere(channel.address)) {
                    hub.drop(channel.task, channel.bucket);
                } else {
                    client(channel.address).send(StreamRequest.close(channel.task, channel.bucket).encode());
                }
            } catch (InterruptedException e) {
                return;
            } catch (Exception e) {
                // the producer ends even without the message
            }
        }
    }

    void close() {
        isClosed = true;
        EXECUTORS.remove(name);
        StreamHub.end(dropper);
        clients.close();
    }
}
