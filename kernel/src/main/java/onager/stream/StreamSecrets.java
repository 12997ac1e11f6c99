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
 * Secrets made of the tokens of a file, one a line, that are executors' or good for everything: the first is shown to others,
 * all are taken. The file is read again when it has changed; one that cannot be used leaves the secrets that there were. A token
 * itself never travels.
 */
final class StreamSecrets implements SecretKeyHolder {
    private final Path file;
    private String stamp = null;
    private Map<String, String> secrets = Map.of(); // by the name that says which one is meant

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
            // those that there were go on to count
        }
        return secrets;
    }

    /** Return the name of the secret that is shown to others. */
    String shown() {
        return current().keySet().iterator().next();
    }

    @Override
    public String getSaslUser(String name) {
        return name;
    }

    /** Return the secret that is called *name*; null when there is none. */
    @Override
    public String getSecretKey(String name) {
        return current().get(name);
    }
}
