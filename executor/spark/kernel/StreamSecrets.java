package onager.kernel;

import io.netty.channel.Channel;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientBootstrap;
import org.apache.spark.network.crypto.AuthClientBootstrap;
import org.apache.spark.network.sasl.SecretKeyHolder;
import org.apache.spark.network.util.TransportConf;

/**
 * Secrets made of the tokens of a file, one a line, that are executors' or good for everything: the first is shown to others,
 * all are taken. The file is read again when it has changed; one that cannot be used leaves the secrets that there were. A token
 * itself never travels.
 */
final class StreamSecrets implements SecretKeyHolder {
    private final Path file;
    private Object stamp = null;
    private Map secrets = new LinkedHashMap(); // by the name that says which one is meant

    StreamSecrets(String file) throws IOException {
        this.file = Paths.get(file, new String[0]);
        read();
    }

    private static String of(String token, String purpose) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(token.getBytes(StandardCharsets.US_ASCII), "HmacSHA256"));
            byte[] made = mac.doFinal(purpose.getBytes(StandardCharsets.US_ASCII));
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < made.length; i++) {
                text.append(Character.forDigit(made[i] >> 4 & 15, 16)).append(Character.forDigit(made[i] & 15, 16));
            }
            return text.toString();
        } catch (java.security.GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    private void read() throws IOException {
        Object now = Files.getLastModifiedTime(file, new LinkOption[0]) + " " + Files.size(file);
        if (now.equals(stamp)) {
            return;
        }
        Map found = new LinkedHashMap();
        List lines = Files.readAllLines(file, StandardCharsets.US_ASCII);
        for (int i = 0; i < lines.size(); i++) {
            String[] words = ((String) lines.get(i)).trim().split("\\s+"); // a token, or NAME ROLE TOKEN
            String token = words[words.length - 1];
            if (!token.isEmpty() && (words.length == 1 || words[1].equals("executor"))) {
                found.put(of(token, "onager stream name").substring(0, 16), of(token, "onager stream secret"));
            }
        }
        if (found.isEmpty()) {
            throw new IOException("there is no token of an executor in " + file);
        }
        secrets = found;
        stamp = now;
    }

    synchronized Map current() {
        try {
            read();
        } catch (IOException e) {
            // those that there were go on to count
        }
        return secrets;
    }

    public String getSaslUser(String name) {
        return name;
    }

    /** Return the secret that is called *name*; null when there is none. */
    public String getSecretKey(String name) {
        return (String) current().get(name);
    }

    /** Return what shows the first secret, as it is by then, on a new connection. */
    TransportClientBootstrap shown(final TransportConf conf) {
        return new TransportClientBootstrap() {
            public void doBootstrap(TransportClient client, Channel channel) {
                String first = (String) current().keySet().iterator().next();
                new AuthClientBootstrap(conf, first, StreamSecrets.this).doBootstrap(client, channel);
            }
        };
    }
}
