package onager.spark43;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import onager.failure.RefusedException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** Partitions of foreign tables as Spark's. In JSON dates are days, timestamps microseconds, decimals text. */
public final class ForeignRows {
    private ForeignRows() {}

    /** Return the partitioning by *transform* of *column*, as Iceberg calls it. */
    public static Transform transform(String transform, String column) {
        return transform.equals("identity") ? Expressions.identity(column) : Expressions.apply(transform, Expressions.column(column));
    }

    public static InternalRow row(JsonNode values, StructType schema) {
        var row = new Object[schema.size()];
        for (int i = 0; i < row.length; i++) {
            row[i] = values.get(i).isNull() ? null : value(values.get(i), schema.apply(i).dataType());
        }
        return new GenericInternalRow(row);
    }

    private static Object value(JsonNode value, DataType type) {
        if (type instanceof BooleanType) {
            return value.asBoolean();
        }
        if (type instanceof IntegerType || type instanceof DateType) {
            return value.asInt();
        }
        if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
            return value.asLong();
        }
        if (type instanceof StringType) {
            return UTF8String.fromString(value.asText());
        }
        if (type instanceof DecimalType decimal) {
            return Decimal.apply(new BigDecimal(value.asText()), decimal.precision(), decimal.scale());
        }
        throw new RefusedException("a table is partitioned by a column of type " + type.sql() + ", which is not read");
    }
}
