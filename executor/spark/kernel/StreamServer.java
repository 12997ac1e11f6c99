package onager.kernel;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.crypto.AuthServerBootstrap;
import org.apache.spark.network.server.OneForOneStreamManager;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;

/** The port at which other executors read what this one's tasks stream, and what this one reaches theirs with. */
final class StreamServer {
    private static final String MODULE = "onager";

    private final TransportContext context;
    private final TransportServer server;
    private final TransportConf conf;
    private final StreamSecrets secrets;

    /** Serve *hub* at *host* and *port* (0: a free one); *secrets*: null where anybody may read. */
    StreamServer(StreamHub hub, String host, int port, StreamSecrets secrets) {
        Map settings = new HashMap();
        settings.put("spark.onager.io.serverThreads", "2");
        settings.put("spark.onager.io.clientThreads", "2");
        settings.put("spark.onager.io.connectionTimeout", "60s");
        settings.put("spark.onager.io.connectionCreationTimeout", "5s");
        settings.put("spark.network.crypto.enabled", secrets == null ? "false" : "true");
        settings.put("spark.network.crypto.saslFallback", "false");
        settings.put("spark.network.crypto.authEngineVersion", "2");
        settings.put("spark.network.crypto.cipher", "AES/GCM/NoPadding");
        this.secrets = secrets;
        this.conf = new TransportConf(MODULE, new MapConfigProvider(settings));
        this.context = new TransportContext(conf, new Handler(hub));
        List guards = new ArrayList();
        if (secrets != null) {
            guards.add(new AuthServerBootstrap(conf, secrets));
        }
        this.server = context.createServer(host, port, guards);
    }

    int port() {
        return server.getPort();
    }

    /** Return what reaches the streams of *hub*, which is served at *here*, and of others. */
    StreamPeers peers(String name, StreamHub hub, String here) {
        List shown = new ArrayList();
        if (secrets != null) {
            shown.add(secrets.shown(conf));
        }
        return new StreamPeers(name, hub, here, context.createClientFactory(shown));
    }

    void close() {
        server.close();
        context.close();
    }

    private static final class Handler extends RpcHandler {
        private final StreamManager none = new OneForOneStreamManager();
        private final StreamHub hub;

        Handler(StreamHub hub) {
            this.hub = hub;
        }

        public StreamManager getStreamManager() {
            return none;
        }

        public void receive(TransportClient client, ByteBuffer message) {
            StreamRequest request = StreamRequest.decode(message);
            if (request.isClose()) {
                hub.drop(request.task, request.bucket);
            }
        }

        public void receive(TransportClient client, ByteBuffer message, final RpcResponseCallback callback) {
            hub.ask(StreamRequest.decode(message), new StreamReply() {
                public void answer(StreamAnswer answer) {
                    callback.onSuccess(answer.encode());
                }

                public void lose(Throwable why) {
                    callback.onFailure(why);
                }
            });
        }
    }
}
