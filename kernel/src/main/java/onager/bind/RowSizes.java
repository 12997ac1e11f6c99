package onager.bind;

import java.util.HashSet;
import java.util.List;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Substring;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import org.apache.spark.sql.types.CalendarIntervalType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

/**
 * Bounds how much larger than its input's rows an operator's rows are. Spark's rows have a bit and eight bytes for each field, then what
 * fields of any length hold.
 */
final class RowSizes {
    private static final int WORD = 8;

    private RowSizes() {}

    /** Return how many times larger than a row of its first child a row of *node* may be, 1 or more; infinite: any number. */
    static double growth(SparkPlan node) {
        SparkPlan child = node.children().head();
        List<?> made = node instanceof ProjectExec project ? Seqs.<NamedExpression>list(project.projectList())
                : node instanceof HashAggregateExec aggregate ? Seqs.<NamedExpression>list(aggregate.resultExpressions())
                : Seqs.<Attribute>list(node.output());
        AttributeSet given = child.outputSet();
        var taken = new HashSet<ExprId>();
        long size = fixed(made.size());
        for (Object one : made) {
            var each = (Expression) one;
            if (!(source(each) instanceof Attribute from && given.contains(from) && taken.add(from.exprId()))) {
                int more = beyondWord(each.dataType());
                if (more < 0) {
                    return Double.POSITIVE_INFINITY;
                }
                size += more;
            }
        }
        return size == 0 ? 1.0 : Math.max(1.0, (double) size / fixed(child.output().size()));
    }

    /** Return what the value of *made* is, or is a part of. */
    private static Expression source(Expression made) {
        Expression value = made instanceof Alias alias ? alias.child() : made;
        return value instanceof Substring part ? part.str() : value;
    }

    /** Return the size of a row of *fields* fields without what fields of any length hold. */
    private static long fixed(int fields) {
        return UnsafeRow.calculateBitSetWidthInBytes(fields) + (long) WORD * fields;
    }

    /** Return how many bytes a value takes beyond its eight; -1: any number. */
    private static int beyondWord(DataType type) {
        return UnsafeRow.isFixedLength(type) ? 0 : type instanceof DecimalType || type instanceof CalendarIntervalType ? 2 * WORD : -1;
    }
}
