package onager.run;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.Callable;
import onager.failure.Failures;
import onager.failure.NoSpace;
import onager.spark43.SinkFiles;
import onager.store.Durable;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileFormatDataWriter;
import org.apache.spark.sql.execution.datasources.WriteJobDescription;
import scala.collection.Iterator;

/**
 * Writes a partition as files of a dataset, in this execution's own directory below the staging directory. Of empty partitions, only the
 * first writes a file (with the schema), so that an empty dataset can be read; and none if the dataset has partitions or buckets.
 */
@SuppressWarnings("serial")
final class WriteSink extends Task {
    private static final int NAMED = 16;
    private final WriteJobDescription description;
    private final String staging;

    WriteSink(Common common, WriteJobDescription description, String staging) {
        super(common);
        this.description = description;
        this.staging = staging;
    }

    @Override
    Written write(TaskContext context, int partition, String nonce, Iterator<InternalRow> rows) throws Exception {
        var done = new Written();
        if (!rows.hasNext() && (partition > 0 || !description.partitionColumns().isEmpty() || description.bucketSpec().isDefined())) {
            return done;
        }
        TaskAttemptContext attempt = attempt(partition);
        FileSystem fs = new Path(staging).getFileSystem(attempt.getConfiguration());
        boolean written = false;
        context.killTaskIfInterrupted(); // else it would recreate the directory of a job that has ended
        try {
            explained(() -> makeStaging(fs));
            List<String> names = writeFiles(context, new SinkFiles(staging, nonce, partition), attempt, fs, rows, done);
            context.killTaskIfInterrupted();
            for (String name : names) {
                done.bytes += fs.getFileStatus(new Path(staging, name)).getLen();
            }
            // All files of the execution's directory, if there are many.
            done.files = names.size() <= NAMED ? names.toArray(String[]::new) : new String[] {nonce};
            written = true;
            return done;
        } finally {
            if (!written) {
                remove(fs, nonce);
            }
        }
    }

    private TaskAttemptContext attempt(int partition) {
        var c = new Configuration(description.serializableHadoopConf().value());
        var id = new TaskAttemptID("onager", 0, TaskType.MAP, partition, 0);
        c.set("mapreduce.task.attempt.id", id.toString());
        c.set("mapreduce.task.id", id.getTaskID().toString());
        c.setBoolean("mapreduce.task.ismap", true);
        c.setInt("mapreduce.task.partition", partition);
        return new TaskAttemptContextImpl(c, id);
    }

    /** Return a path of *fs* as one of the local file system; null: it is none. */
    private static java.nio.file.Path local(FileSystem fs, Path path) {
        return fs instanceof LocalFileSystem files ? files.pathToFile(path).toPath() : null;
    }

    private boolean makeStaging(FileSystem fs) throws IOException {
        java.nio.file.Path local = local(fs, new Path(staging));
        var above = local == null ? List.<java.nio.file.Path>of() : Durable.namesNew(local);
        boolean isMade = fs.mkdirs(new Path(staging));
        Durable.syncDirectories(above);
        return isMade;
    }

    /** Make what was written survive a loss of power: once its task is reported, nobody writes it again. */
    private boolean sync(FileSystem fs, List<String> names) throws IOException {
        java.nio.file.Path local = local(fs, new Path(staging));
        if (local != null) {
            Durable.sync(names.stream().map(local::resolve).toList(), local.getParent());
        }
        return local != null;
    }

    private List<String> writeFiles(TaskContext context, SinkFiles files, TaskAttemptContext attempt, FileSystem fs,
            Iterator<InternalRow> rows, Written done) throws Exception {
        FileFormatDataWriter writer = explained(() -> files.writer(description, attempt));
        long begunNs;
        try {
            while (rows.hasNext()) {
                InternalRow row = rows.next();
                explained(() -> {
                    writer.write(row);
                    return null;
                });
                check(context, ++done.rows);
            }
            begunNs = System.nanoTime();
            explained(writer::commit);
            explained(() -> sync(fs, files.names()));
        } catch (Throwable e) {
            try {
                writer.abort();
            } catch (Throwable late) {
                e.addSuppressed(late); // the first exception is the cause
            }
            throw e;
        }
        done.committedSince(begunNs);
        return files.names();
    }

    /** Call *write*; turn an error about missing space into a `NoSpace` that names the place. */
    private <T> T explained(Callable<T> write) throws Exception {
        try {
            return write.call();
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
            remove(new Path(staging).getFileSystem(description.serializableHadoopConf().value()), nonce);
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
