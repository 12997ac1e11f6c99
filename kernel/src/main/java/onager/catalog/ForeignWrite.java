package onager.catalog;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import onager.failure.RefusedException;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What a statement writes into a table of another catalog.
 *
 * @param replaces nothing, written (the partitions that get rows), all, or matching
 * @param matching the values of partition columns whose rows go
 */
public record ForeignWrite(String catalog, List<String> identifier, String replaces, Map<String, Object> matching) {
    /** Returns what *analyzed* writes, or null if it is not to such a table. */
    static ForeignWrite of(LogicalPlan analyzed) {
        if (!(analyzed instanceof V2WriteCommand write) || !(write.table() instanceof DataSourceV2Relation to)
                || !(to.table() instanceof ForeignTable table)) {
            return null;
        }
        String replaces;
        var matching = new HashMap<String, Object>();
        if (analyzed instanceof AppendData) {
            replaces = "nothing";
        } else if (analyzed instanceof OverwritePartitionsDynamic) {
            replaces = table.partitioning().length > 0 ? "written" : "all";
        } else if (analyzed instanceof OverwriteByExpression overwrite) {
            boolean isWhole = overwrite.deleteExpr() instanceof Literal literal && Boolean.TRUE.equals(literal.value());
            replaces = isWhole ? "all" : "matching";
            if (!isWhole) {
                addEqualities(overwrite.deleteExpr(), matching);
            }
        } else {
            throw new RefusedException("rows of " + table.name() + " are appended, or replaced as a whole or by partitions: write with "
                    + "INSERT INTO or INSERT OVERWRITE");
        }
        return new ForeignWrite(table.catalog(), table.parts(), replaces, matching);
    }

    private static void addEqualities(Expression condition, Map<String, Object> to) {
        if (condition instanceof And both) {
            addEqualities(both.left(), to);
            addEqualities(both.right(), to);
        } else if ((condition instanceof EqualNullSafe || condition instanceof EqualTo) && condition instanceof BinaryComparison equal
                && equal.left() instanceof NamedExpression column && equal.right().foldable()) {
            to.put(column.name(), plain(equal.right().eval(null)));
        } else {
            throw new RefusedException("rows are replaced by the values of partition columns, and not where " + condition.sql());
        }
    }

    private static Object plain(Object value) {
        return value instanceof UTF8String || value instanceof Decimal ? value.toString() : value;
    }

    /** The columns of the table, in order. */
    static List<String> names(LogicalPlan analyzed) {
        return Seqs.list(((LogicalPlan) ((V2WriteCommand) analyzed).table()).output()).stream().map(NamedExpression::name).toList();
    }
}
