package onager.spark43;

import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.TransportClientBootstrap;
import org.apache.spark.network.crypto.AuthClientBootstrap;
import org.apache.spark.network.crypto.AuthServerBootstrap;
import org.apache.spark.network.sasl.SecretKeyHolder;
import org.apache.spark.network.server.OneForOneStreamManager;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.server.TransportServerBootstrap;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;

/** Spark's network transport between processes. */
public final class Transport {
    private Transport() {}

    public static TransportConf conf(String module, Map<String, String> settings) {
        return new TransportConf(module, new MapConfigProvider(settings));
    }

    public static TransportContext context(TransportConf conf, RpcHandler handler) {
        return new TransportContext(conf, handler);
    }

    /** Return a stream manager without streams, since only requests are served. */
    public static StreamManager noStreams() {
        return new OneForOneStreamManager();
    }

    /** Return the server's authentication with *secrets*; none if null, so that everyone may connect. */
    public static List<TransportServerBootstrap> guards(TransportConf conf, SecretKeyHolder secrets) {
        return secrets == null ? List.of() : List.of(new AuthServerBootstrap(conf, secrets));
    }

    /** Return the client's authentication with the current secret *name* for each new connection; none if *secrets* is null. */
    public static List<TransportClientBootstrap> shown(TransportConf conf, SecretKeyHolder secrets, Supplier<String> name) {
        if (secrets == null) {
            return List.of();
        }
        return List.of((client, channel) -> new AuthClientBootstrap(conf, name.get(), secrets).doBootstrap(client, channel));
    }
}
