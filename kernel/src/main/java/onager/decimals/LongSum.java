package onager.decimals;

import java.util.ArrayList;
import java.util.List;
import java.util.function.UnaryOperator;
import onager.spark43.Expressions;
import onager.spark43.Numbers;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.LongType$;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * Spark's `sum` or `avg` of a decimal, which adds longs instead of objects. The first column of Spark's buffer, the sum, is two: the halves of
 * its digits. What else Spark keeps of a group, and how it makes the result of that, with its rounding, nulls and errors, stays Spark's.
 */
@SuppressWarnings("serial")
public final class LongSum extends DeclarativeAggregate {
    private static final Expression ZERO = Numbers.number(0L);

    private final Expression child;
    private final DeclarativeAggregate of;
    private final AttributeReference high;
    private final AttributeReference low;

    /** *of*: Spark's function, of *child* or of another expression of its type. Spark calls this constructor by reflection. */
    public LongSum(Expression child, DeclarativeAggregate of) {
        this.child = child;
        this.of = of.children().head() == child ? of : (DeclarativeAggregate) of.withNewChildren(Seqs.seq(child));
        this.high = Expressions.attribute("high", LongType$.MODULE$);
        this.low = Expressions.attribute("low", LongType$.MODULE$);
    }

    /** The digits of a row in two halves; the low one is null where Spark adds nothing. */
    private record Row(Expression high, Expression low) {
        /** Returns what is to be added to the sum. */
        Row added() {
            return new Row(orZero(high), orZero(low));
        }

        private static Expression orZero(Expression half) {
            return half == null || !half.nullable() ? half : Numbers.first(List.of(half, ZERO));
        }
    }

    /**
     * Returns a row's digits; without a high half where a long is always enough. Where it is not, they are those of Spark's decimal: for some
     * rows, or for all if Spark has put another child here, of which longs cannot be computed.
     */
    private Row row() {
        Expression digits = Digits.of(child);
        if (digits != null && !Digits.mayBeBeyond(digits)) {
            return new Row(null, digits);
        }
        Expression high = Expressions.call(Longs.class, LongType$.MODULE$, "digitsHigh", false, child);
        Expression low = Expressions.call(Longs.class, LongType$.MODULE$, "digitsLow", false, child);
        if (digits == null) {
            return new Row(high, low);
        }
        var isBeyond = Numbers.equal(digits, Numbers.number(Longs.BEYOND));
        return new Row(Numbers.choice(isBeyond, high, Numbers.sign(digits)), Numbers.choice(isBeyond, low, digits));
    }

    /** Returns *expressions* of Spark's, but for the first, after *change*; the halves' ones are before them. */
    private Seq<Expression> all(Expression ofHigh, Expression ofLow, Seq<? extends Expression> expressions, UnaryOperator<Expression> change) {
        var all = new ArrayList<>(List.of(ofHigh, ofLow));
        var theirs = Seqs.list(expressions);
        theirs.subList(1, theirs.size()).forEach(each -> all.add(each.transformUp(Seqs.change(Expression.class, change::apply))));
        return Seqs.seq(all);
    }

    @Override
    public Seq<AttributeReference> aggBufferAttributes() {
        var all = new ArrayList<>(List.of(high, low));
        var theirs = Seqs.list(of.aggBufferAttributes());
        all.addAll(theirs.subList(1, theirs.size()));
        return Seqs.seq(all);
    }

    @Override
    public Seq<Expression> initialValues() {
        return all(ZERO, ZERO, of.initialValues(), each -> each);
    }

    @Override
    public Seq<Expression> updateExpressions() {
        Row row = row();
        Row added = row.added();
        Expression newHigh = added.high == null ? new LongCall(LongCall.Method.SUM_HIGH, high, low, added.low) : sumHigh(added.high, added.low);
        return all(newHigh, Numbers.sum(low, added.low), of.updateExpressions(), each -> each.equals(child) ? row.low : each);
    }

    private Expression sumHigh(Expression otherHigh, Expression otherLow) {
        return new LongCall(LongCall.Method.SUM_HIGH, high, low, otherHigh, otherLow);
    }

    @Override
    public Seq<Expression> mergeExpressions() {
        var theirs = Seqs.list(of.inputAggBufferAttributes());
        var ours = Seqs.list(inputAggBufferAttributes());
        return all(sumHigh(ours.get(0), ours.get(1)), Numbers.sum(low, ours.get(1)), of.mergeExpressions(),
                each -> theirs.contains(each) ? ours.get(theirs.indexOf(each) + 1) : each);
    }

    @Override
    public Expression evaluateExpression() {
        AttributeReference sum = of.aggBufferAttributes().head();
        int scale = ((DecimalType) sum.dataType()).scale();
        Expression value = Expressions.call(Longs.class, sum.dataType(), "decimal", true, high, low, Numbers.integer(scale));
        return of.evaluateExpression().transformDown(Seqs.change(AttributeReference.class, each -> each.equals(sum) ? value : each));
    }

    @Override
    public DataType dataType() {
        return of.dataType();
    }

    @Override
    public boolean nullable() {
        return true;
    }

    @Override
    public Seq<Expression> children() {
        return Seqs.seq(child);
    }

    @Override
    public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
        return new LongSum(children.head(), of);
    }

    @Override
    public String prettyName() {
        return of.prettyName();
    }

    @Override
    public Iterator<Object> flatArguments() {
        return of.flatArguments();
    }

    @Override
    public int productArity() {
        return 2;
    }

    @Override
    public Object productElement(int n) {
        return n == 0 ? child : of;
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof LongSum;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof LongSum sum && of.equals(sum.of);
    }

    @Override
    public int hashCode() {
        return 31 * of.hashCode() + 1;
    }
}
