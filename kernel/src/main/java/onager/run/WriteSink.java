package onager.run;

import java.io.IOException;
import java.util.Locale;
import onager.failure.Failures;
import onager.failure.NoSpace;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.Iterator;

/**
 * Writes a partition as one file of a dataset, in this execution's own directory below the staging directory. Of empty partitions, only
 * the first writes a file (with the schema), so that an empty dataset can be read.
 */
@SuppressWarnings("serial")
final class WriteSink extends Task {
    private final OutputWriterFactory factory;
    private final StructType schema;
    private final SerializableConfiguration conf;
    private final String staging;

    WriteSink(Common common, OutputWriterFactory factory, StructType schema, SerializableConfiguration conf, String staging) {
        super(common);
        this.factory = factory;
        this.schema = schema;
        this.conf = conf;
        this.staging = staging;
    }

    @Override
    Written write(TaskContext context, int partition, String nonce, Iterator<InternalRow> rows) throws Exception {
        var done = new Written();
        if (partition > 0 && !rows.hasNext()) {
            return done;
        }
        TaskAttemptContext attempt = attempt(partition);
        String name = String.format(Locale.ROOT, "%s/part-%05d-%s%s", nonce, partition, nonce, factory.getFileExtension(attempt));
        var path = new Path(staging, name);
        FileSystem fs = path.getFileSystem(attempt.getConfiguration());
        boolean written = false;
        context.killTaskIfInterrupted(); // else it would recreate the directory of a job that has ended
        try {
            writeFile(context, path, attempt, rows, done);
            context.killTaskIfInterrupted();
            done.bytes = fs.getFileStatus(path).getLen();
            done.files = new String[] {name};
            written = true;
            return done;
        } finally {
            if (!written) {
                remove(fs, nonce);
            }
        }
    }

    private TaskAttemptContext attempt(int partition) {
        var c = new Configuration(conf.value());
        var id = new TaskAttemptID("onager", 0, TaskType.MAP, partition, 0);
        c.set("mapreduce.task.attempt.id", id.toString());
        c.set("mapreduce.task.id", id.getTaskID().toString());
        c.setBoolean("mapreduce.task.ismap", true);
        c.setInt("mapreduce.task.partition", partition);
        return new TaskAttemptContextImpl(c, id);
    }

    private void writeFile(TaskContext context, Path path, TaskAttemptContext attempt, Iterator<InternalRow> rows, Written done)
            throws Exception {
        OutputWriter writer = told(() -> factory.newInstance(path.toString(), schema, attempt));
        try {
            while (rows.hasNext()) {
                InternalRow row = rows.next();
                told(() -> {
                    writer.write(row);
                    return null;
                });
                check(context, ++done.rows);
            }
        } catch (Throwable e) {
            try {
                writer.close();
            } catch (Throwable late) {
                e.addSuppressed(late); // the first exception is the cause
            }
            throw e;
        }
        long begunNs = System.nanoTime();
        told(() -> {
            writer.close();
            return null;
        });
        done.committedSince(begunNs);
    }

    private interface Write<T> {
        T run() throws Exception;
    }

    /** Call *write*; turn an error about missing space into a `NoSpace` that names the place. */
    private <T> T told(Write<T> write) throws Exception {
        try {
            return write.run();
        } catch (Exception e) {
            throw NoSpace.is(e)
                    ? new NoSpace("there is no space left where the result is written, " + staging + ": free space there ("
                            + Failures.text(e) + ")", e)
                    : e;
        }
    }

    @Override
    void discard(int partition, String nonce) {
        try {
            remove(new Path(staging).getFileSystem(conf.value()), nonce);
        } catch (IOException e) {
            // it is removed with the job
        }
    }

    /** Remove an execution's staged files, and the staging directory if it is empty, since the job may have ended. */
    private void remove(FileSystem fs, String nonce) throws IOException {
        fs.delete(new Path(staging, nonce), true);
        var all = new Path(staging);
        try {
            if (fs.listStatus(all).length == 0) {
                fs.delete(all, false);
            }
        } catch (IOException e) {
            // it does not exist, or another execution has just started to write there
        }
    }
}
