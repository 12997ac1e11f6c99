package onager.plan;

import java.util.ArrayList;
import java.util.List;
import onager.spark43.Expressions;
import onager.spark43.Nodes;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.ShufflePartitionIdPassThrough;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.types.IntegerType$;

/**
 * The bucket of a row in an exchange. If it depends on a subquery, only the fragment knows it, so the rows carry their bucket as an
 * additional last column, which the reading stage drops.
 */
final class Buckets {
    private static final String NAME = "onager_bucket";

    private Buckets() {}

    /** Returns the expression that gives a row's bucket. */
    static Expression expression(ShuffleExchangeExec exchange) {
        Expression bucket = bucket(exchange);
        boolean waits = ExecSubqueryExpression.hasSubquery(bucket);
        return waits ? Expressions.column(exchange.child().output().size(), IntegerType$.MODULE$, false) : bucket;
    }

    private static Expression bucket(ShuffleExchangeExec exchange) {
        return exchange.outputPartitioning() instanceof ShufflePartitionIdPassThrough given
                ? given.partitionIdExpression()
                : ((HashPartitioning) exchange.outputPartitioning()).partitionIdExpression();
    }

    /** Returns the child of an exchange with the bucket column. */
    static SparkPlan added(ShuffleExchangeExec exchange) {
        List<NamedExpression> columns = new ArrayList<>(Seqs.list(exchange.child().output()));
        columns.add(Expressions.alias(bucket(exchange), NAME));
        return Nodes.project(Seqs.seq(columns), exchange.child());
    }

    /** Returns a leaf for rows with the bucket column, below a projection that drops it; *like* gives the other columns. */
    static SparkPlan removed(SparkPlan like, String name) {
        List<Attribute> columns = new ArrayList<>(Seqs.list(like.output()));
        columns.add(Expressions.attribute(NAME, IntegerType$.MODULE$));
        SparkPlan leaf = Nodes.placeholder(like.session().sparkContext(), Seqs.seq(columns), name);
        return Nodes.project(Seqs.<NamedExpression>seq(Seqs.list(like.output())), leaf);
    }
}
