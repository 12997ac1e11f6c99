package onager.spark43;

import java.util.List;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NumericEvalContext;
import org.apache.spark.sql.catalyst.expressions.ShiftRight;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.types.IntegerType$;
import org.apache.spark.sql.types.LongType$;
import scala.Option;
import scala.Tuple2;

/** Makes expressions of longs. */
public final class Numbers {
    private Numbers() {}

    /** Return *value*, which may be null, as a long. */
    public static Literal number(Long value) {
        return new Literal(value, LongType$.MODULE$);
    }

    /** Return *value* as an int. */
    public static Expression integer(int value) {
        return new Literal(value, IntegerType$.MODULE$);
    }

    /** Return the whole number *number* as a long. */
    public static Expression asLong(Expression number) {
        return new Cast(number, LongType$.MODULE$, Option.empty(), EvalMode$.MODULE$.LEGACY());
    }

    /** Return the digits of *decimal*, of which there are at most 18. */
    public static Expression digits(Expression decimal) {
        return new UnscaledValue(decimal);
    }

    /** Return the sum of two longs, without a check of its range. */
    public static Expression sum(Expression a, Expression b) {
        return new Add(a, b, new NumericEvalContext(EvalMode$.MODULE$.LEGACY(), false));
    }

    /** Return -1 for a negative *number*, else 0. */
    public static Expression sign(Expression number) {
        return new ShiftRight(number, integer(Long.SIZE - 1));
    }

    public static Expression equal(Expression a, Expression b) {
        return new EqualTo(a, b);
    }

    public static Expression choice(Expression predicate, Expression yes, Expression no) {
        return new If(predicate, yes, no);
    }

    /** Return a choice of *branches*, pairs of predicate and value; *otherwise*: null for none. */
    public static Expression cases(List<Tuple2<Expression, Expression>> branches, Expression otherwise) {
        return new CaseWhen(Seqs.seq(branches), Option.apply(otherwise));
    }

    /** Return the first of *numbers* that is not null. */
    public static Expression first(List<Expression> numbers) {
        return new Coalesce(Seqs.seq(numbers));
    }
}
