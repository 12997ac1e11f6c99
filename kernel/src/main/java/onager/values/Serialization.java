package onager.values;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.NotSerializableException;
import java.io.ObjectOutputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.serializer.SerializerInstance;
import scala.reflect.ClassTag$;

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

    /** Decode the output of `encode`, which the caller knows to be a T, with the classes of the thread's class loader. */
    public static <T> T decode(byte[] bytes) throws IOException, ClassNotFoundException {
        SerializerInstance java = SparkEnv.get().closureSerializer().newInstance();
        return java.deserialize(ByteBuffer.wrap(bytes), Thread.currentThread().getContextClassLoader(), ClassTag$.MODULE$.<T>apply(Object.class));
    }

    /**
     * Refuses broadcast variables: they are serialised as a number, which would mean another value in another process. Leaves out the
     * accumulators of Python's functions: nobody reads their updates, and Spark can send one only once.
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
            return object instanceof PythonAccumulatorV2 ? null : object;
        }
    }
}
