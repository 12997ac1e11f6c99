package onager.stream;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.network.sasl.SecretKeyHolder;

/**
 * Secrets derived from the tokens in a file, one per line, that are for executors or for all roles. The first is used for connections to
 * others, and all are accepted. The file is read again when it changes; if it is unusable, the previous secrets stay. Tokens themselves are
 * never sent.
 */
final class StreamSecrets implements SecretKeyHolder {
    private final Path file;
    private String stamp = null;
    private Map<String, String> secrets = Map.of(); // by the name under which a client refers to one

    StreamSecrets(String file) throws IOException {
        this.file = Path.of(file);
        read();
    }

    private static String of(String token, String purpose) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(token.getBytes(StandardCharsets.US_ASCII), "HmacSHA256"));
            return HexFormat.of().formatHex(mac.doFinal(purpose.getBytes(StandardCharsets.US_ASCII)));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    private void read() throws IOException {
        String now = Files.getLastModifiedTime(file) + " " + Files.size(file);
        if (now.equals(stamp)) {
            return;
        }
        var found = new LinkedHashMap<String, String>();
        for (String line : Files.readAllLines(file, StandardCharsets.US_ASCII)) {
            String[] words = line.trim().split("\\s+"); // a token, or NAME ROLE TOKEN
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

    private synchronized Map<String, String> current() {
        try {
            read();
        } catch (IOException e) {
            // the previous secrets stay valid
        }
        return secrets;
    }

    /** Return the name of the secret for connections to others. */
    String shown() {
        return current().keySet().iterator().next();
    }

    @Override
    public String getSaslUser(String name) {
        return name;
    }

    /** Return the secret called *name*, or null. */
    @Override
    public String getSecretKey(String name) {
        return current().get(name);
    }
}
