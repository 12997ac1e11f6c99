package onager.kernel;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** Writes a partition of a result as an Arrow IPC stream: returned with the outcome while small, else a file. */
public final class WriteResult extends Task {
    static final int INLINE = 256 * 1024;
    static final int BATCH_ROWS = 65536;
    static final int BATCH_BYTES = 1 << 20;

    private final Store store;
    private final String directory;
    private final StructType schema;
    private final String zone;
    private final Seq projection;

    /** *projection*: expressions bound to the output that make what *schema* says, or null where the output is that already. */
    public WriteResult(String run, Map nonces, DataType[] types, Store store, String directory, StructType schema, String zone, Seq projection) {
        super(run, nonces, types);
        this.store = store;
        this.directory = directory;
        this.schema = schema;
        this.zone = zone;
        this.projection = projection;
    }

    /** The Arrow schema that every partition's stream has. */
    static org.apache.arrow.vector.types.pojo.Schema arrow(StructType schema, String zone) {
        return ArrowUtils.toArrowSchema(schema, zone, false, false, false);
    }

    /** The stream of a result without rows: what every stream begins with, then the end mark. */
    byte[] empty() throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("onager schema", 0L, Long.MAX_VALUE);
        VectorSchemaRoot root = VectorSchemaRoot.create(arrow(schema, zone), allocator);
        try {
            ArrowStreamWriter stream = new ArrowStreamWriter(root, (DictionaryProvider) null, (OutputStream) out);
            stream.start();
            stream.end();
        } finally {
            root.close();
            allocator.close();
        }
        return out.toByteArray();
    }

    /** Bytes in memory up to INLINE, then in a file with all that came before. */
    private final class Spool extends OutputStream {
        private final TaskContext context;
        private final String name;
        ByteArrayOutputStream held = new ByteArrayOutputStream();
        Store.Pending file = null;

        Spool(TaskContext context, String name) {
            this.context = context;
            this.name = name;
        }

        public void write(int b) throws IOException {
            write(new byte[] {(byte) b}, 0, 1);
        }

        public void write(byte[] bytes, int offset, int length) throws IOException {
            if (file == null && held.size() + length > INLINE) {
                context.killTaskIfInterrupted(); // else it would make anew the directory of a job that is over
                file = store.create(name);
                byte[] before = held.toByteArray();
                held = null;
                file.write(before, 0, before.length);
            }
            if (file == null) {
                held.write(bytes, offset, length);
            } else {
                file.write(bytes, offset, length);
            }
        }
    }

    protected Written write(TaskContext context, int partition, String nonce, Iterator rows) throws Exception {
        Written done = new Written();
        String name = directory + "/" + partition + "-" + nonce + ".arrow";
        Spool spool = new Spool(context, name);
        BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("onager result", 0L, Long.MAX_VALUE);
        VectorSchemaRoot root = null;
        try {
            root = VectorSchemaRoot.create(arrow(schema, zone), allocator);
            ArrowWriter batch = ArrowWriter.create(root);
            ArrowStreamWriter stream = new ArrowStreamWriter(root, (DictionaryProvider) null, (OutputStream) spool);
            UnsafeProjection project = projection == null ? null : UnsafeProjection.create(projection);
            if (project != null) {
                project.initialize(partition);
            }
            stream.start();
            int held = 0;
            while (rows.hasNext()) {
                InternalRow row = (InternalRow) rows.next();
                batch.write(project == null ? row : (InternalRow) project.apply(row));
                held++;
                done.rows++;
                if (held == BATCH_ROWS || (held & 255) == 0 && batch.sizeInBytes() > BATCH_BYTES) {
                    flush(batch, stream);
                    held = 0;
                    context.killTaskIfInterrupted();
                }
            }
            if (held > 0) {
                flush(batch, stream);
            }
            stream.end();
            context.killTaskIfInterrupted();
            if (spool.file == null) {
                done.inline = spool.held.toByteArray();
                done.bytes = done.inline.length;
                done.isInline = true;
            } else {
                spool.file.commit();
                done.bytes = spool.file.position;
            }
            return done;
        } catch (Throwable e) {
            if (spool.file != null) {
                spool.file.abort();
            }
            throw e;
        } finally {
            if (root != null) {
                root.close();
            }
            allocator.close();
        }
    }

    private static void flush(ArrowWriter batch, ArrowStreamWriter stream) throws IOException {
        batch.finish();
        stream.writeBatch();
        batch.reset();
    }

    void discard(Outcome outcome) {
        remove(store, directory + "/" + outcome.partition + "-" + outcome.fields.get("nonce") + ".arrow");
    }
}
