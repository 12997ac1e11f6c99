package onager.kernel;

import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.optimizer.BuildSide;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.DataSourceUtils;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.DataSourceRDD;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.ShuffledHashJoinExec;
import org.apache.spark.sql.execution.joins.SortMergeJoinExec;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/** Every call of the kernel whose shape changes between minor versions of Spark; written for 4.3. */
final class Spark43 {
    private Spark43() {}

    /** The column at *ordinal*, as it is or as text. */
    static Object column(int ordinal, DataType type, boolean nullable, boolean asText, String zone) {
        BoundReference reference = new BoundReference(ordinal, type, nullable);
        return asText ? new Cast(reference, StringType$.MODULE$, scala.Option.apply(zone), EvalMode$.MODULE$.LEGACY()) : reference;
    }

    /** *order* of a row's column at *ordinal* instead of what it says. */
    static SortOrder ofColumn(SortOrder order, int ordinal) {
        BoundReference column = new BoundReference(ordinal, order.dataType(), order.nullable());
        return new SortOrder(column, order.direction(), order.nullOrdering(), PlanTools.noItems());
    }

    /** *join* over other sides, of which *buildSide* goes into a hash table. */
    static ShuffledHashJoinExec hashJoin(SortMergeJoinExec join, SparkPlan left, SparkPlan right, Object buildSide) {
        return new ShuffledHashJoinExec(join.leftKeys(), join.rightKeys(), join.joinType(), (BuildSide) buildSide, join.condition(),
                left, right, join.isSkewJoin());
    }

    /** *join*, by the order of the keys of both sides instead of by what one of them broadcasts. */
    static SortMergeJoinExec sortMergeJoin(BroadcastHashJoinExec join, SparkPlan left, SparkPlan right) {
        return new SortMergeJoinExec(join.leftKeys(), join.rightKeys(), join.joinType(), join.condition(), byKeys(left, join.leftKeys()),
                byKeys(right, join.rightKeys()), false);
    }

    private static SortExec byKeys(SparkPlan side, Seq keys) {
        java.util.List order = new java.util.ArrayList();
        for (int i = 0; i < keys.size(); i++) {
            Ascending$ up = Ascending$.MODULE$;
            order.add(new SortOrder((Expression) keys.apply(i), up, up.defaultNullOrdering(), PlanTools.noItems()));
        }
        return new SortExec(PlanTools.seq(order), false, side, 0);
    }

    /** The rows, or batches, of a data source's partitions. */
    static RDD dataSource(SparkContext sc, Seq partitions, PartitionReaderFactory readers, boolean isColumnar) {
        return new DataSourceRDD(sc, partitions, readers, isColumnar, scala.collection.immutable.Map$.MODULE$.empty());
    }

    static FileFormat format(String name) throws ReflectiveOperationException {
        String base = "org.apache.spark.sql.execution.datasources.";
        String made;
        if (name.equals("parquet")) {
            made = "parquet.ParquetFileFormat";
        } else if (name.equals("csv")) {
            made = "csv.CSVFileFormat";
        } else if (name.equals("json")) {
            made = "json.JsonFileFormat";
        } else if (name.equals("orc")) {
            made = "orc.OrcFileFormat";
        } else {
            throw new RefusedException("a sink is written as parquet, csv, json or orc, not as " + name);
        }
        return (FileFormat) Class.forName(base + made).getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
    }

    static OutputWriterFactory prepareWrite(FileFormat format, SparkSession session, Job job,
            scala.collection.immutable.Map options, StructType schema) {
        DataSourceUtils.verifySchema(format, schema, false);
        return format.prepareWrite(session, job, options, schema);
    }
}
