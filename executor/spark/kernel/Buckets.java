package onager.kernel;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.ShufflePartitionIdPassThrough;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.types.IntegerType$;
import org.apache.spark.sql.types.Metadata;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Which bucket of an exchange a row goes to. Where a subquery has a say in it, what that gives is known to the fragment alone, so the rows
 * bring their bucket along, as a column behind their own that is left out again where they are read.
 */
public final class Buckets {
    private static final String NAME = "onager_bucket";

    private Buckets() {}

    /** Returns the Java serialisation of the expression that chooses the bucket of a row. */
    public static byte[] expression(ShuffleExchangeExec exchange) throws IOException {
        Expression bucket = bucket(exchange);
        if (ExecSubqueryExpression.hasSubquery(bucket)) {
            bucket = new BoundReference(exchange.child().output().size(), IntegerType$.MODULE$, false);
        }
        return PlanTools.serialize(bucket);
    }

    private static Expression bucket(ShuffleExchangeExec exchange) {
        Partitioning partitioning = exchange.outputPartitioning();
        if (partitioning instanceof ShufflePartitionIdPassThrough) {
            return ((ShufflePartitionIdPassThrough) partitioning).partitionIdExpression();
        }
        return ((HashPartitioning) partitioning).partitionIdExpression();
    }

    /** Returns what an exchange carries, with the column. */
    public static SparkPlan added(ShuffleExchangeExec exchange) {
        List columns = columns(exchange.child());
        columns.add(new Alias(
                bucket(exchange), NAME, NamedExpression$.MODULE$.newExprId(), PlanTools.noItems(), Option.empty(), PlanTools.noItems()));
        return new ProjectExec(PlanTools.seq(columns), exchange.child());
    }

    /** Returns the leaf that stands for rows with the column, and leaves it out; {@code like} gives the others. */
    public static SparkPlan removed(SparkPlan like, String name) {
        List columns = columns(like);
        columns.add(new AttributeReference(
                NAME, IntegerType$.MODULE$, false, Metadata.empty(), NamedExpression$.MODULE$.newExprId(), PlanTools.noItems()));
        return new ProjectExec(like.output(), PlanTools.placeholder(like, PlanTools.seq(columns), name));
    }

    private static List columns(SparkPlan plan) {
        return new ArrayList(CollectionConverters.asJava(plan.output()));
    }
}
