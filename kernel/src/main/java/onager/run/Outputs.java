package onager.run;

import java.util.List;
import java.util.function.Supplier;
import onager.bind.Bound;
import onager.rows.ExchangeOutput;
import onager.rows.RowFileOutput;
import onager.sort.KeyOrder;
import onager.spark43.Files;
import onager.spark43.SinkFiles;
import onager.store.LocalFiles;
import onager.store.Store;
import onager.stream.StreamedTasks;
import onager.stream.Streams;
import onager.values.Serialization;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.catalyst.catalog.BucketSpec;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** Makes the tasks that write a stage's rows to its output. */
public record Outputs(Store store, Supplier<Streams> streams) {
    /** *expression*: the serialised bucket expression or ordering, or empty; *streamed*: the tasks, if they stream. */
    public Task task(Bound bound, OutputSpec spec, Task.Common common, byte[] expression, StreamedTasks streamed) throws Exception {
        return switch (spec.layout()) {
            case EXCHANGE -> {
                int counted = spec.samples() == null ? spec.buckets() : 1;
                var files = new RowFileOutput(store, spec.directory(), spec.buckets(), counted);
                yield exchange(bound, files, spec, common, expression);
            }
            case STREAM -> exchange(bound, streams.get().output(streamed, spec.directory(), spec.buckets()), spec, common, expression);
            case RESULT -> new WriteResult(common, store, spec.directory(), ResultSchema.named(bound.output(), spec.names()),
                    bound.session().sessionState().conf().sessionLocalTimeZone());
            case SINK -> sink(bound, spec, common);
        };
    }

    /** Make the task that writes a stage's rows to the exchange *to*, which is prepared. */
    private static Task exchange(Bound bound, ExchangeOutput to, OutputSpec spec, Task.Common common, byte[] expression) throws Exception {
        to.prepare();
        if (spec.samples() != null) {
            return new WriteSorted(common, to, KeyOrder.decoded(expression, bound.output()), spec.samples());
        }
        return new WriteExchange(common, to, expression.length == 0 ? null : Serialization.decode(expression), bound.output());
    }

    private static Task sink(Bound bound, OutputSpec spec, Task.Common common) throws Exception {
        StructType schema = ResultSchema.named(bound.output(), spec.names());
        var options = Files.options(spec.options());
        var conf = bound.session().sessionState().newHadoopConfWithOptions(options);
        conf.set("fs.file.impl", LocalFiles.class.getName());
        conf.setBoolean("fs.file.impl.disable.cache", true);
        Job job = Job.getInstance(conf);
        org.apache.spark.sql.SparkSession.setActiveSession(bound.session());
        List<String> partitionBy = spec.partitionBy() == null ? List.of() : spec.partitionBy();
        OutputSpec.Bucketed in = spec.bucketed();
        Option<BucketSpec> bucketed = in == null ? Option.empty() : Option.apply(SinkFiles.buckets(in.count(), in.by(), in.sortBy()));
        var description = SinkFiles.description(spec.format(), bound.session(), job, options, bound.output(), schema, partitionBy, bucketed);
        return new WriteSink(common, description, spec.staging());
    }
}
