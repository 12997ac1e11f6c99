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
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
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
    /** Bytes of rows after which a batch is measured, which takes as long as to write some rows. */
    static final int LOOK_BYTES = BATCH_BYTES / 16;

    private final Store store;
    private final String directory;
    private final StructType schema;
    private final String zone;
    private final Seq projection;
    /** How many bytes are returned with the outcome. */
    int inline = INLINE;

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

    protected Written write(TaskContext context, int partition, String nonce, Iterator rows) throws Exception {
        Written done = new Written();
        String name = directory + "/" + partition + "-" + nonce + ".arrow";
        ResultFile out = new ResultFile(store, name, context, inline);
        BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("onager result", 0L, Long.MAX_VALUE);
        VectorSchemaRoot root = null;
        try {
            root = VectorSchemaRoot.create(arrow(schema, zone), allocator);
            ArrowWriter batch = ArrowWriter.create(root);
            ArrowStreamWriter stream = new ArrowStreamWriter(root, (DictionaryProvider) null, (OutputStream) out);
            UnsafeProjection project = projection == null ? null : UnsafeProjection.create(projection);
            if (project != null) {
                project.initialize(partition);
            }
            stream.start();
            out.endPiece();
            UnsafeProjection[] lazy = new UnsafeProjection[1];
            int held = 0;
            long unseen = 0;
            while (rows.hasNext()) {
                Object given = rows.next();
                UnsafeRow row = project == null ? unsafe(given, lazy) : project.apply((InternalRow) given);
                batch.write(row);
                held++;
                done.rows++;
                unseen += row.getSizeInBytes();
                boolean looks = unseen >= LOOK_BYTES;
                unseen = looks ? 0 : unseen;
                if (held == BATCH_ROWS || looks && batch.sizeInBytes() > BATCH_BYTES) {
                    flush(batch, stream, out);
                    held = 0;
                    context.killTaskIfInterrupted();
                }
            }
            if (held > 0) {
                flush(batch, stream, out);
            }
            stream.end();
            out.endPiece();
            context.killTaskIfInterrupted();
            out.finish(done);
            return done;
        } catch (Throwable e) {
            out.abort();
            throw e;
        } finally {
            if (root != null) {
                root.close();
            }
            allocator.close();
        }
    }

    private static void flush(ArrowWriter batch, ArrowStreamWriter stream, ResultFile out) throws IOException {
        batch.finish();
        stream.writeBatch();
        out.endPiece();
        batch.reset();
    }

    void discard(Outcome outcome) {
        remove(store, directory + "/" + outcome.partition + "-" + outcome.fields.get("nonce") + ".arrow");
    }
}
