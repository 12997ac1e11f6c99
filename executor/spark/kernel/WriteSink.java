package onager.kernel;

import java.io.IOException;
import java.util.Map;
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
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.Iterator;

/**
 * Writes a partition as one file of a dataset, below the staging directory in a directory of this execution's own. Of the
 * empty partitions only the first writes one (with the schema), so that an empty dataset can be read.
 */
public final class WriteSink extends Task {
    private final OutputWriterFactory factory;
    private final StructType schema;
    private final SerializableConfiguration conf;
    private final String staging;

    public WriteSink(String run, Map nonces, DataType[] types, OutputWriterFactory factory, StructType schema,
            SerializableConfiguration conf, String staging) {
        super(run, nonces, types);
        this.factory = factory;
        this.schema = schema;
        this.conf = conf;
        this.staging = staging;
    }

    protected Written write(TaskContext context, int partition, String nonce, Iterator rows) throws Exception {
        Written done = new Written();
        if (partition > 0 && !rows.hasNext()) {
            return done;
        }
        Configuration c = new Configuration(conf.value());
        TaskAttemptID id = new TaskAttemptID("onager", 0, TaskType.MAP, partition, 0);
        c.set("mapreduce.task.attempt.id", id.toString());
        c.set("mapreduce.task.id", id.getTaskID().toString());
        c.setBoolean("mapreduce.task.ismap", true);
        c.setInt("mapreduce.task.partition", partition);
        TaskAttemptContext attempt = new TaskAttemptContextImpl(c, id);
        String number = String.valueOf(100000 + partition);
        String padded = partition < 100000 ? number.substring(1) : String.valueOf(partition);
        String name = nonce + "/part-" + padded + "-" + nonce + factory.getFileExtension(attempt);
        Path path = new Path(staging, name);
        FileSystem fs = path.getFileSystem(c);
        boolean written = false;
        context.killTaskIfInterrupted(); // else it would make anew the directory of a job that is over
        try {
            OutputWriter writer = open(path, attempt);
            try {
                while (rows.hasNext()) {
                    write(writer, (InternalRow) rows.next());
                    done.rows++;
                    if ((done.rows & 1023L) == 0L) {
                        context.killTaskIfInterrupted();
                    }
                }
            } catch (Throwable e) {
                try {
                    writer.close();
                } catch (Throwable late) {
                    e.addSuppressed(late); // what came first says more
                }
                throw e;
            }
            try {
                writer.close();
            } catch (Exception e) {
                throw told(e);
            }
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

    private OutputWriter open(Path path, TaskAttemptContext attempt) throws Exception {
        try {
            return factory.newInstance(path.toString(), schema, attempt);
        } catch (Exception e) {
            throw told(e);
        }
    }

    private void write(OutputWriter writer, InternalRow row) throws Exception {
        try {
            writer.write(row);
        } catch (Exception e) {
            throw told(e);
        }
    }

    private Exception told(Exception e) {
        return NoSpace.is(e) ? new NoSpace("there is no space left where the result is written, " + staging + ": free space there ("
                + Failures.text(e) + ")", e) : e;
    }

    void discard(Outcome outcome) {
        try {
            remove(new Path(staging).getFileSystem(conf.value()), (String) outcome.fields.get("nonce"));
        } catch (IOException e) {
            // it goes with the job
        }
    }

    /** Remove what an execution staged, and the directory for all of them once nothing is in it: the job may be over. */
    private void remove(FileSystem fs, String nonce) throws IOException {
        fs.delete(new Path(staging, nonce), true);
        Path all = new Path(staging);
        try {
            if (fs.listStatus(all).length == 0) {
                fs.delete(all, false);
            }
        } catch (IOException e) {
            // it is gone, or another has just begun to write there
        }
    }
}
