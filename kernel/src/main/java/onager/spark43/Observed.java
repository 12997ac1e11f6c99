package onager.spark43;

import onager.values.Seqs;
import org.apache.spark.connect.proto.ExecutePlanResponse;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.connect.common.LiteralValueProtoConverter$;
import org.apache.spark.sql.execution.CollectMetricsExec$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.StructType;

/** Metrics that a query has observed ({@code Dataset.observe}) while it ran. */
public final class Observed {
    private Observed() {}

    /** Returns what *plan*, which has run, has observed: an encoded ExecutePlanResponse with nothing else; empty if it observes nothing. */
    public static byte[] of(SparkPlan plan) {
        ExecutePlanResponse.Builder response = ExecutePlanResponse.newBuilder();
        for (var found : Seqs.each(CollectMetricsExec$.MODULE$.collect(plan).iterator())) {
            var metrics = ExecutePlanResponse.ObservedMetrics.newBuilder().setName(found._1());
            Row row = found._2();
            StructType schema = row.schema();
            for (int i = 0; i < schema.size(); i++) {
                metrics.addKeys(schema.apply(i).name());
                metrics.addValues(LiteralValueProtoConverter$.MODULE$.toLiteralProto(row.get(i), schema.apply(i).dataType()));
            }
            response.addObservedMetrics(metrics);
        }
        return response.build().toByteArray();
    }
}
