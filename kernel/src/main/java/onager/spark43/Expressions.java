package onager.spark43;

import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.codegen.Block;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructField;
import scala.Option;
import scala.StringContext;
import scala.collection.immutable.Seq;

/** Makes expressions, by constructors whose parameters change between minor versions of Spark. */
public final class Expressions {
    private Expressions() {}

    /** Return a row's column at *ordinal*. */
    public static Expression column(int ordinal, DataType type, boolean nullable) {
        return new BoundReference(ordinal, type, nullable);
    }

    /** Return *column* as text, in the time zone *zone*. */
    public static Expression asText(Expression column, String zone) {
        return new Cast(column, StringType$.MODULE$, Option.apply(zone), EvalMode$.MODULE$.LEGACY());
    }

    /** Return *condition* as a predicate on rows, without generated code. */
    public static BasePredicate predicate(Expression condition) {
        return Predicate$.MODULE$.createInterpreted(condition);
    }

    public static Alias alias(Expression of, String name) {
        return new Alias(of, name, NamedExpression$.MODULE$.newExprId(), Seqs.seq(), Option.empty(), Seqs.seq());
    }

    /** Return *column* with the name and the id of *as*. */
    public static Alias renamed(Attribute column, Attribute as) {
        return new Alias(column, as.name(), as.exprId(), as.qualifier(), Option.apply(as.metadata()), Seqs.seq());
    }

    /** Return an attribute that is *field*. */
    public static AttributeReference attribute(StructField field) {
        return new AttributeReference(field.name(), field.dataType(), field.nullable(), field.metadata(),
                NamedExpression$.MODULE$.newExprId(), Seqs.seq());
    }

    /** Return an attribute that may be null. */
    public static AttributeReference attribute(String name, DataType type, ExprId id) {
        return new AttributeReference(name, type, true, Metadata.empty(), id, Seqs.seq());
    }

    /** Return an attribute that is never null. */
    public static AttributeReference attribute(String name, DataType type) {
        return new AttributeReference(name, type, false, Metadata.empty(), NamedExpression$.MODULE$.newExprId(), Seqs.seq());
    }

    /** Return a call of the public static method *name* of *of*, which is null where an argument is; *mayBeNull*: or by itself. */
    public static Expression call(Class<?> of, DataType type, String name, boolean mayBeNull, Expression... arguments) {
        return new StaticInvoke(of, type, name, Seqs.seq(arguments), Seqs.seq(), true, mayBeNull, true, Option.empty());
    }

    /** Return *aggregate* with another function of the same type. */
    public static AggregateExpression with(AggregateExpression aggregate, AggregateFunction function) {
        return new AggregateExpression(function, aggregate.mode(), aggregate.isDistinct(), aggregate.filter(), aggregate.resultId());
    }

    /** Return *text* as code, with each of its `@` replaced by one of *parts*: values, code, or text. */
    public static Block code(String text, Object... parts) {
        return Block.BlockHelper$.MODULE$.code$extension(new StringContext(Seqs.seq(text.split("@", -1))), Seqs.seq(parts));
    }

    static SortOrder ascending(Expression key) {
        return new SortOrder(key, Ascending$.MODULE$, Ascending$.MODULE$.defaultNullOrdering(), Seqs.seq());
    }

    /** Return *order* applied to a row's column at *ordinal*. */
    public static SortOrder ofColumn(SortOrder order, int ordinal) {
        return new SortOrder(column(ordinal, order.dataType(), order.nullable()), order.direction(), order.nullOrdering(), Seqs.seq());
    }

    /** Return a comparator of rows, whose columns *order* refers to by position. */
    public static LazilyGeneratedOrdering ordering(Seq<SortOrder> order) {
        return new LazilyGeneratedOrdering(order);
    }

    /** Return a comparator of rows with *attributes*. */
    public static LazilyGeneratedOrdering ordering(Seq<SortOrder> order, Seq<Attribute> attributes) {
        return new LazilyGeneratedOrdering(order, attributes);
    }
}
