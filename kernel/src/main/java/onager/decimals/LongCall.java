package onager.decimals;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.function.ToLongFunction;
import onager.spark43.Expressions;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.ConditionalExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.Block;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.LongType$;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * A method of {@link Longs} called with longs. It is null if an argument is, but `BEYOND` if one before that is: then Spark computes the
 * value, and may raise an error. What comes behind a null or `BEYOND` is not evaluated, as Spark does not.
 */
@SuppressWarnings("serial")
public final class LongCall extends Expression implements ConditionalExpression, Serializable {
    /** A method that can be called: its name, and itself for code that is not generated. */
    public enum Method {
        PLUS("plus", a -> Longs.plus(a[0], a[1])),
        MINUS("minus", a -> Longs.minus(a[0], a[1])),
        TIMES("times", a -> Longs.times(a[0], a[1])),
        WITHIN("within", a -> Longs.within(a[0], a[1])),
        SUM_HIGH("sumHigh", a -> a.length == 3 ? Longs.sumHigh(a[0], a[1], a[2]) : Longs.sumHigh(a[0], a[1], a[2], a[3]));

        private final String shown;
        private final ToLongFunction<long[]> function;

        Method(String shown, ToLongFunction<long[]> function) {
            this.shown = shown;
            this.function = function;
        }
    }

    private final Method method;
    private final Seq<Expression> arguments;

    LongCall(Method method, Expression... arguments) {
        this(method, Seqs.seq(arguments));
    }

    /** Spark calls this constructor by reflection. */
    public LongCall(Method method, Seq<Expression> arguments) {
        this.method = method;
        this.arguments = arguments;
    }

    @Override
    public Object eval(InternalRow row) {
        var values = new long[arguments.size()];
        for (int i = 0; i < values.length; i++) {
            var value = (Long) arguments.apply(i).eval(row);
            if (value == null || (i + 1 < values.length && value == Longs.BEYOND && !isSum())) {
                return value;
            }
            values[i] = value;
        }
        return method.function.applyAsLong(values);
    }

    /** Whether all arguments are always evaluated: a half of a sum may be any long, and none is null. */
    private boolean isSum() {
        return method == Method.SUM_HIGH;
    }

    /** Returns the arguments that are evaluated whatever the others are: Spark may compute those before it evaluates this expression. */
    @Override
    public Seq<Expression> alwaysEvaluatedInputs() {
        return isSum() ? arguments : Seqs.seq(arguments.head());
    }

    @Override
    public LongCall withNewAlwaysEvaluatedInputs(Seq<Expression> inputs) {
        var all = new ArrayList<>(Seqs.list(arguments));
        for (int i = 0; i < inputs.size(); i++) {
            all.set(i, inputs.apply(i));
        }
        return new LongCall(method, Seqs.<Expression>seq(all));
    }

    @Override
    public Seq<Seq<Expression>> branchGroups() {
        return Seqs.seq();
    }

    @Override
    public ExprCode doGenCode(CodegenContext context, ExprCode result) {
        List<ExprCode> codes = new ArrayList<>();
        List<Object> values = new ArrayList<>();
        arguments.foreach(each -> codes.add(each.genCode(context)));
        codes.forEach(each -> values.add(each.value()));
        String call = "%s.%s(%s)".formatted(Longs.class.getName(), method.shown, String.join(", ", values.stream().map(Object::toString).toList()));
        Block code = Expressions.code("@ = @;\n@ = false;\n", result.value(), call, result.isNull());
        for (int i = codes.size() - 1; i >= 0; i--) {
            code = withArgument(i, codes.get(i), code, result);
        }
        Block whole = Expressions.code("boolean @ = true;\nlong @ = 0L;\n@", result.isNull(), result.value(), code);
        return result.copy(whole, result.isNull(), result.value());
    }

    /** Returns code that computes the argument number *i*, and goes on with *rest* unless the result is known. */
    private Block withArgument(int i, ExprCode argument, Block rest, ExprCode result) {
        Block known = rest;
        if (i + 1 < arguments.size() && !isSum()) {
            known = Expressions.code("if (@ == @L) {\n@ = false;\n@ = @L;\n} else {\n@}\n", argument.value(), String.valueOf(Longs.BEYOND),
                    result.isNull(), result.value(), String.valueOf(Longs.BEYOND), rest);
        }
        return arguments.apply(i).nullable() ? Expressions.code("@\nif (!@) {\n@}\n", argument.code(), argument.isNull(), known)
                : Expressions.code("@\n@", argument.code(), known);
    }

    @Override
    public boolean nullable() {
        return Seqs.list(arguments).stream().anyMatch(Expression::nullable);
    }

    @Override
    public DataType dataType() {
        return LongType$.MODULE$;
    }

    @Override
    public Seq<Expression> children() {
        return arguments;
    }

    @Override
    public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
        return new LongCall(method, children);
    }

    @Override
    public String prettyName() {
        return method.shown;
    }

    @Override
    public int productArity() {
        return 2;
    }

    @Override
    public Object productElement(int n) {
        return n == 0 ? method : arguments;
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof LongCall;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof LongCall call && method == call.method && arguments.equals(call.arguments);
    }

    @Override
    public int hashCode() {
        return 31 * method.name().hashCode() + arguments.hashCode();
    }
}
