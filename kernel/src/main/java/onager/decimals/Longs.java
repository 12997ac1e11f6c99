package onager.decimals;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.Decimal$;

/**
 * Arithmetic on the digits of decimals. A value's digits are one long, or {@link #BEYOND} if a long is too short for them. A sum's digits have
 * 128 bits, in two longs: a signed high half, and a low half without a sign. Generated code calls these methods; they make no objects, but for
 * values of more than a long.
 */
public final class Longs {
    /** What stands for digits that no long holds: whatever is computed from it is beyond, too. */
    public static final long BEYOND = Long.MIN_VALUE;
    /** The high half of a sum that left the range of decimals: it stays so, whatever is added. */
    private static final long OVERFLOW = Long.MIN_VALUE;

    private static final BigInteger LIMIT = BigInteger.TEN.pow(38);
    private static final long LIMIT_HIGH = LIMIT.shiftRight(64).longValueExact();
    private static final long SMALL = 1_000_000_000_000_000_000L;

    private Longs() {}

    public static long plus(long a, long b) {
        long sum = a + b;
        return a == BEYOND || b == BEYOND || ((a ^ sum) & (b ^ sum)) < 0 ? BEYOND : sum;
    }

    public static long minus(long a, long b) {
        long difference = a - b;
        return a == BEYOND || b == BEYOND || ((a ^ b) & (a ^ difference)) < 0 ? BEYOND : difference;
    }

    public static long times(long a, long b) {
        long product = a * b;
        return a == BEYOND || b == BEYOND || Math.multiplyHigh(a, b) != product >> 63 ? BEYOND : product;
    }

    /** Returns *x*, or `BEYOND` if it is not within *limit* of 0. */
    public static long within(long x, long limit) {
        return x < limit && x > -limit ? x : BEYOND;
    }

    /** Returns the high half of the sum of a number of two halves and *x*. */
    public static long sumHigh(long high, long low, long x) {
        return high + (x >> 63) + carry(low, x);
    }

    /** Returns the high half of a sum of decimals, or `OVERFLOW`; both numbers have two halves. */
    public static long sumHigh(long high, long low, long xHigh, long x) {
        if (high == OVERFLOW || xHigh == OVERFLOW) {
            return OVERFLOW;
        }
        long sum = high + xHigh + carry(low, x);
        return (sum < LIMIT_HIGH && sum > ~LIMIT_HIGH) || isDecimal(sum, low + x) ? sum : OVERFLOW;
    }

    private static int carry(long low, long x) {
        return Long.compareUnsigned(low + x, low) < 0 ? 1 : 0;
    }

    private static boolean isDecimal(long high, long low) {
        return number(high, low).abs().compareTo(LIMIT) < 0;
    }

    private static BigInteger number(long high, long low) {
        return BigInteger.valueOf(high).shiftLeft(64).or(new BigInteger(Long.toUnsignedString(low)));
    }

    /** Returns the decimal of *scale* digits behind its point that a sum is; null if it left their range. */
    public static Decimal decimal(long high, long low, int scale) {
        if (high == low >> 63 && low < SMALL && low > -SMALL) {
            return Decimal$.MODULE$.createUnsafe(low, Decimal$.MODULE$.MAX_LONG_DIGITS(), scale);
        }
        return high == OVERFLOW ? null : Decimal$.MODULE$.apply(new BigDecimal(number(high, low), scale));
    }

    /** Returns the high half of the digits of *decimal*. */
    public static long digitsHigh(Decimal decimal) {
        return digits(decimal).shiftRight(64).longValue();
    }

    /** Returns the low half of the digits of *decimal*. */
    public static long digitsLow(Decimal decimal) {
        return digits(decimal).longValue();
    }

    private static BigInteger digits(Decimal decimal) {
        return decimal.toJavaBigDecimal().unscaledValue();
    }
}
