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

    /** Write it to the file *target*: the gateway to Python takes 40 ms for an answer above 8 KiB. */
    public static void write(String target, Object thing) throws IOException {
        Files.write(Path.of(target), encode(thing));
    }

    /** Return what `encode` made, which the caller knows to be a T. */
    @SuppressWarnings("unchecked")
    public static <T> T decode(byte[] bytes) throws IOException, ClassNotFoundException {
        try (var stream = new Decoder(new ByteArrayInputStream(bytes))) {
            return (T) stream.readObject();
        }
    }

    /**
     * Refuses broadcast variables: one is a number that each process resolves by itself, so in another process it would name another
     * value.
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

    /** Finds classes by the thread's class loader. */
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
