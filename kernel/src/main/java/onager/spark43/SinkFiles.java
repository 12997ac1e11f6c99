package onager.spark43;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.UUID;
import onager.failure.RefusedException;
import onager.values.Seqs;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.catalyst.catalog.BucketSpec;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DynamicPartitionDataSingleWriter;
import org.apache.spark.sql.execution.datasources.FileFormatDataWriter;
import org.apache.spark.sql.execution.datasources.SingleDirectoryDataWriter;
import org.apache.spark.sql.execution.datasources.V1WritesUtils;
import org.apache.spark.sql.execution.datasources.WriteJobDescription;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/** The files of one task of a sink: Spark's writers write them, below a directory and under names that are ours. */
@SuppressWarnings("serial")
public final class SinkFiles extends FileCommitProtocol {
    private static final String RECORDS = "maxRecordsPerFile";
    private final String staging;
    private final String nonce;
    private final int partition;
    private final List<String> names = new ArrayList<>();

    /** Files go to the directory *nonce* below *staging*. */
    public SinkFiles(String staging, String nonce, int partition) {
        this.staging = staging;
        this.nonce = nonce;
        this.partition = partition;
    }

    /**
     * Return what Spark's writers need to know. Rows have the columns *output*, called as in *schema*; those of *partitionBy* become
     * directories. Rows with the same values must follow each other, and those of each bucket among them.
     */
    public static WriteJobDescription description(String format, SparkSession session, Job job, Map<String, String> options,
            Seq<Attribute> output, StructType schema, List<String> partitionBy,
            Option<BucketSpec> buckets) {
        var conf = session.sessionState().conf();
        var columns = new ArrayList<Attribute>();
        var all = Seqs.list(output);
        for (int i = 0; i < all.size(); i++) {
            columns.add(all.get(i).withName(schema.fields()[i].name()));
        }
        var partitions = partitionBy.stream().map(name -> columns.stream().filter(column -> conf.caseSensitiveAnalysis()
                ? column.name().equals(name) : column.name().equalsIgnoreCase(name)).findFirst()
                .orElseThrow(() -> new RefusedException("there is no column " + name + " by which the output could be partitioned")))
                .toList();
        var data = columns.stream().filter(column -> !partitions.contains(column)).toList();
        var fields = data.stream().map(column -> schema.fields()[columns.indexOf(column)]).toArray(StructField[]::new);
        var writers = Files.writer(format, session, job, options, new StructType(fields));
        long records = options.get(RECORDS).isDefined() ? Long.parseLong(options.apply(RECORDS)) : conf.maxRecordsPerFile();
        return new WriteJobDescription(UUID.randomUUID().toString(), new SerializableConfiguration(job.getConfiguration()), writers,
                Seqs.seq(columns), Seqs.seq(data), Seqs.seq(partitions),
                V1WritesUtils.getWriterBucketSpec(buckets, Seqs.seq(data), options), "", Seqs.map(java.util.Map.of()), records,
                conf.sessionLocalTimeZone(), Seqs.seq());
    }

    /** Return buckets of rows: how many, by which columns, and those by which each file is sorted. */
    public static BucketSpec buckets(int count, List<String> by, List<String> sortBy) {
        return new BucketSpec(count, Seqs.seq(by), Seqs.seq(sortBy));
    }

    /** Return a writer of these files. */
    public FileFormatDataWriter writer(WriteJobDescription description, TaskAttemptContext attempt) {
        return description.partitionColumns().isEmpty() && description.bucketSpec().isEmpty()
                ? new SingleDirectoryDataWriter(description, attempt, this, Seqs.map(java.util.Map.of()))
                : new DynamicPartitionDataSingleWriter(description, attempt, this, Seqs.map(java.util.Map.of()));
    }

    /** The files, as paths below the staging directory, in the order in which they were begun. */
    public List<String> names() {
        return names;
    }

    @Override
    public String newTaskTempFile(TaskAttemptContext attempt, Option<String> directory, FileNameSpec spec) {
        String below = directory.isDefined() ? nonce + "/" + directory.get() : nonce;
        names.add(String.format(Locale.ROOT, "%s/%spart-%05d-%s%s", below, spec.prefix(), partition, nonce, spec.suffix()));
        return new Path(staging, names.get(names.size() - 1)).toString();
    }

    @Override
    public TaskCommitMessage commitTask(TaskAttemptContext attempt) {
        return new TaskCommitMessage(null);
    }

    @Override
    public void setupTask(TaskAttemptContext attempt) {}

    @Override
    public void abortTask(TaskAttemptContext attempt) {}

    @Override
    public void setupJob(JobContext job) {}

    @Override
    public void commitJob(JobContext job, Seq<TaskCommitMessage> messages) {}

    @Override
    public void abortJob(JobContext job) {}
}
