package onager.stream;

import java.nio.ByteBuffer;
import java.util.Map;
import onager.spark43.Transport;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.util.TransportConf;

/** The server from which other executors read this executor's streams, and the client for theirs. */
final class StreamServer {
    private final TransportContext context;
    private final TransportServer server;
    private final TransportConf conf;
    private final StreamSecrets secrets;

    /** Serve *hub* at *host* and *port* (0: a free one); *secrets*: null if anyone may read. */
    StreamServer(StreamHub hub, String host, int port, StreamSecrets secrets) {
        this.secrets = secrets;
        this.conf = Transport.conf("onager", Map.of(
                "spark.onager.io.serverThreads", "2",
                "spark.onager.io.clientThreads", "2",
                "spark.onager.io.connectionTimeout", "60s",
                "spark.onager.io.connectionCreationTimeout", "5s",
                "spark.network.crypto.enabled", secrets == null ? "false" : "true",
                "spark.network.crypto.saslFallback", "false",
                "spark.network.crypto.authEngineVersion", "2",
                "spark.network.crypto.cipher", "AES/GCM/NoPadding"));
        this.context = Transport.context(conf, new Handler(hub));
        this.server = context.createServer(host, port, Transport.guards(conf, secrets));
    }

    int port() {
        return server.getPort();
    }

    /** Return the access to the streams of *hub*, which is served at *here*, and to those of other executors. */
    StreamExecutors executors(String name, StreamHub hub, String here) {
        return new StreamExecutors(name, hub, here, context.createClientFactory(Transport.shown(conf, secrets, () -> secrets.shown())));
    }

    void close() {
        server.close();
        context.close();
    }

    private static final class Handler extends RpcHandler {
        private final StreamManager none = Transport.noStreams();
        private final StreamHub hub;

        Handler(StreamHub hub) {
            this.hub = hub;
        }

        @Override
        public StreamManager getStreamManager() {
            return none;
        }

        @Override
        public void receive(TransportClient client, ByteBuffer message) {
            StreamRequest request = StreamRequest.decode(message);
            if (request.isClose()) {
                hub.drop(request.task(), request.bucket());
            }
        }

        @Override
        public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
            hub.ask(StreamRequest.decode(message), new StreamReply() {
                @Override
                public void answer(StreamAnswer answer) {
                    callback.onSuccess(answer.encode());
                }

                @Override
                public void lose(Throwable why) {
                    callback.onFailure(why);
                }
            });
        }
    }
}
