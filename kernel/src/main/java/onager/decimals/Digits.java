package onager.decimals;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import onager.spark43.Numbers;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import scala.Tuple2;

/**
 * Makes expressions that give the digits of a decimal, without its point, as a long. One is null where the decimal is, and `BEYOND` where its
 * digits, or others on the way to them, are too many: then the decimal may also be null, or an error.
 */
final class Digits {
    private static final int LONG_DIGITS = 18;

    private Digits() {}

    /** Returns the digits of *decimal*, or null if longs are not enough to compute them. */
    static Expression of(Expression decimal) {
        Expression found = computed(decimal, (DecimalType) decimal.dataType());
        return found == null && type(decimal).precision() <= LONG_DIGITS ? Numbers.digits(decimal) : found;
    }

    /** Whether *digits*, which `of` made, may be `BEYOND`. */
    static boolean mayBeBeyond(Expression digits) {
        return !(digits instanceof UnscaledValue);
    }

    private static DecimalType type(Expression decimal) {
        return (DecimalType) decimal.dataType();
    }

    private static Expression computed(Expression decimal, DecimalType type) {
        if (decimal instanceof Literal literal) {
            return ofLiteral(literal.value(), type);
        } else if (decimal instanceof BinaryArithmetic arithmetic) {
            return ofArithmetic(arithmetic, type);
        } else if (decimal instanceof UnaryMinus minus) {
            return call(LongCall.Method.MINUS, Numbers.number(0L), of(minus.child()));
        } else if (decimal instanceof Cast cast) {
            return ofCast(cast.child(), type);
        } else if (decimal instanceof If choice) {
            Expression yes = branch(choice.trueValue(), type);
            Expression no = branch(choice.falseValue(), type);
            return yes == null || no == null ? null : Numbers.choice(choice.predicate(), yes, no);
        } else if (decimal instanceof CaseWhen choice) {
            return ofCases(choice, type);
        } else if (decimal instanceof Coalesce choice) {
            List<Expression> all = Seqs.list(choice.children()).stream().map(each -> branch(each, type)).toList();
            return all.stream().allMatch(Objects::nonNull) ? Numbers.first(all) : null;
        }
        return null;
    }

    private static Expression ofLiteral(Object value, DecimalType type) {
        if (!(value instanceof Decimal decimal)) {
            return Numbers.number(null);
        }
        BigInteger digits = decimal.toJavaBigDecimal().unscaledValue();
        return decimal.scale() == type.scale() && digits.bitLength() < Long.SIZE ? Numbers.number(digits.longValue()) : null;
    }

    private static Expression ofArithmetic(BinaryArithmetic arithmetic, DecimalType type) {
        if (!(arithmetic.left().dataType() instanceof DecimalType left) || !(arithmetic.right().dataType() instanceof DecimalType right)) {
            return null;
        }
        if (arithmetic instanceof Multiply && type.scale() == left.scale() + right.scale()
                && type.precision() >= Math.min(LONG_DIGITS + 1, left.precision() + right.precision())) {
            return call(LongCall.Method.TIMES, of(arithmetic.left()), of(arithmetic.right()));
        }
        int whole = Math.max(left.precision() - left.scale(), right.precision() - right.scale()) + 1;
        if (type.scale() != Math.max(left.scale(), right.scale()) || type.precision() < Math.min(LONG_DIGITS + 1, whole + type.scale())) {
            return null;
        }
        var method = arithmetic instanceof Add ? LongCall.Method.PLUS : arithmetic instanceof Subtract ? LongCall.Method.MINUS : null;
        return method == null ? null : call(method, scaled(arithmetic.left(), type), scaled(arithmetic.right(), type));
    }

    private static Expression ofCast(Expression child, DecimalType type) {
        Expression digits = null;
        int whole = LONG_DIGITS + 1;
        if (child.dataType() instanceof DecimalType from) {
            digits = scaled(child, type);
            whole = from.precision() - from.scale();
        } else if (child.dataType() instanceof IntegralType) {
            digits = times(Numbers.asLong(child), type.scale());
        }
        boolean fits = type.precision() > LONG_DIGITS || type.precision() - type.scale() >= whole;
        return fits ? digits : call(LongCall.Method.WITHIN, digits, power(type.precision()));
    }

    private static Expression ofCases(CaseWhen choice, DecimalType type) {
        Expression none = choice.elseValue().isDefined() ? branch(choice.elseValue().get(), type) : null;
        var branches = new ArrayList<Tuple2<Expression, Expression>>();
        for (var each : Seqs.list(choice.branches())) {
            branches.add(new Tuple2<>(each._1(), branch(each._2(), type)));
        }
        boolean isWhole = branches.stream().allMatch(each -> each._2() != null) && (none != null || choice.elseValue().isEmpty());
        return isWhole ? Numbers.cases(branches, none) : null;
    }

    /** Returns the digits of what may be the value of an expression of *type*. */
    private static Expression branch(Expression value, DecimalType type) {
        return value.dataType().equals(type) ? of(value) : null;
    }

    /** Returns the digits of *decimal* if it had as many behind its point as *type* has. */
    private static Expression scaled(Expression decimal, DecimalType type) {
        return times(of(decimal), type.scale() - type(decimal).scale());
    }

    private static Expression times(Expression digits, int zeros) {
        if (digits == null || zeros < 0 || zeros > LONG_DIGITS) {
            return null;
        }
        if (digits instanceof Literal literal && literal.value() instanceof Long value) {
            return Numbers.number(Longs.times(value, BigInteger.TEN.pow(zeros).longValueExact()));
        }
        return zeros == 0 ? digits : new LongCall(LongCall.Method.TIMES, digits, power(zeros));
    }

    private static Expression power(int digits) {
        return Numbers.number(BigInteger.TEN.pow(digits).longValueExact());
    }

    private static Expression call(LongCall.Method method, Expression a, Expression b) {
        return a == null || b == null ? null : new LongCall(method, a, b);
    }
}
