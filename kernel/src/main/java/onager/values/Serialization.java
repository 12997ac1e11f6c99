package onager.values;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.NotSerializableException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.broadcast.Broadcast;

/** Java's serialisation of plans, expressions and descriptions of leaves. */
public final class Serialization {
    private Serialization() {}

    public static byte[] encode(Object thing) throws IOException {
        var bytes = new ByteArrayOutputStream();
        try (var stream = new Encoder(bytes)) {
            stream.writeObject(thing);
        }
        return bytes.toByteArray();
    }

    /** Write *thing* to the file *target*; an answer above 8 KiB would be slow over the gateway to Python. */
    public static void write(String target, Object thing) throws IOException {
        Files.write(Path.of(target), encode(thing));
    }

    /** Decode the output of `encode`, which the caller knows to be a T. */
    @SuppressWarnings("unchecked")
    public static <T> T decode(byte[] bytes) throws IOException, ClassNotFoundException {
        try (var stream = new Decoder(new ByteArrayInputStream(bytes))) {
            return (T) stream.readObject();
        }
    }

    /**
     * Refuses broadcast variables: they are serialised as a number, which would mean another value in another process.
     */
    private static final class Encoder extends ObjectOutputStream {
        Encoder(OutputStream out) throws IOException {
            super(out);
            enableReplaceObject(true);
        }

        @Override
        protected Object replaceObject(Object object) throws IOException {
            if (object instanceof Broadcast) {
                throw new NotSerializableException(Broadcast.class.getName());
            }
            return object;
        }
    }

    /** Loads classes with the thread's class loader. */
    private static final class Decoder extends ObjectInputStream {
        Decoder(InputStream in) throws IOException {
            super(in);
        }

        @Override
        protected Class<?> resolveClass(ObjectStreamClass c) throws IOException, ClassNotFoundException {
            try {
                return Class.forName(c.getName(), false, Thread.currentThread().getContextClassLoader());
            } catch (ClassNotFoundException e) {
                return super.resolveClass(c);
            }
        }
    }
}
