package onager.run;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import java.util.List;
import onager.store.Store;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** Writes a partition of a result as an Arrow IPC stream: returned inline with the outcome if small, else a file. */
@SuppressWarnings("serial")
public final class WriteResult extends Task {
    static final int INLINE = 256 * 1024;
    private static final int BATCH_ROWS = 65536;
    private static final int BATCH_BYTES = 1 << 20;
    /** The bytes of rows after which a batch is measured; measuring takes as long as writing some rows. */
    private static final int LOOK_BYTES = BATCH_BYTES / 16;

    private final Store store;
    private final String directory;
    private final StructType shown;
    private final String zone;
    private final Seq<Expression> projection;
    private int inline = INLINE;
    private boolean isPart = false;

    /** *schema*: the schema of the rows. */
    WriteResult(Common common, Store store, String directory, StructType schema, String zone) {
        super(common);
        this.store = store;
        this.directory = directory;
        this.shown = ResultSchema.shown(schema);
        this.zone = zone;
        this.projection = ResultSchema.projection(schema, zone);
    }

    /** Write parts that `Whole` combines, of which at most *bytes* are returned inline with the outcome. */
    void writeParts(int bytes) {
        inline = bytes;
        isPart = true;
    }

    private static Schema arrow(StructType schema, String zone) {
        return ArrowUtils.toArrowSchema(schema, zone, false, false, false);
    }

    /** Return the Arrow IPC schema message of a result with *plan*'s output columns, named *names*. */
    public static byte[] arrowSchema(SparkSession session, SparkPlan plan, List<String> names) throws IOException {
        Seq<Attribute> output = plan.output();
        StructType schema = ResultSchema.shown(ResultSchema.named(output, names));
        var out = new ByteArrayOutputStream();
        MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)),
                arrow(schema, session.sessionState().conf().sessionLocalTimeZone()));
        return out.toByteArray();
    }

    /** Return the stream of a result without rows: the schema, then the end mark. */
    byte[] empty() throws IOException {
        var out = new ByteArrayOutputStream();
        try (var allocator = ArrowUtils.rootAllocator().newChildAllocator("onager schema", 0L, Long.MAX_VALUE);
                var root = VectorSchemaRoot.create(arrow(shown, zone), allocator);
                var stream = new ArrowStreamWriter(root, null, out)) {
            stream.start();
            stream.end();
        }
        return out.toByteArray();
    }

    static String name(String directory, int partition, String nonce) {
        return directory + "/" + partition + "-" + nonce + ".arrow";
    }

    @Override
    Written write(TaskContext context, int partition, String nonce, Iterator<InternalRow> rows) throws Exception {
        var done = new Written();
        var out = new ResultFile(store, name(directory, partition, nonce), context, inline, isPart);
        try (var allocator = ArrowUtils.rootAllocator().newChildAllocator("onager result", 0L, Long.MAX_VALUE);
                var root = VectorSchemaRoot.create(arrow(shown, zone), allocator)) {
            ArrowWriter batch = ArrowWriter.create(root);
            @SuppressWarnings("resource") // closing it ends the stream, also after a failure; the root is closed here
            var stream = new ArrowStreamWriter(root, null, out);
            UnsafeProjection project = projection == null ? null : UnsafeProjection.create(projection);
            if (project != null) {
                project.initialize(partition);
            }
            stream.start();
            out.endPiece();
            Unsafe unsafe = unsafe();
            int held = 0;
            long unseen = 0;
            while (rows.hasNext()) {
                InternalRow given = rows.next();
                UnsafeRow row = project == null ? unsafe.of(given) : project.apply(given);
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
            long begunNs = System.nanoTime();
            if (held > 0) {
                flush(batch, stream, out);
            }
            stream.end();
            out.endPiece();
            context.killTaskIfInterrupted();
            out.finish(done);
            done.committedSince(begunNs);
            return done;
        } catch (Throwable e) {
            out.abort();
            throw e;
        }
    }

    private static void flush(ArrowWriter batch, ArrowStreamWriter stream, ResultFile out) throws IOException {
        batch.finish();
        stream.writeBatch();
        out.endPiece();
        batch.reset();
    }

    @Override
    void discard(int partition, String nonce) {
        store.discard(name(directory, partition, nonce));
    }
}
