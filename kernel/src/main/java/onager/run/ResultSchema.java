package onager.run;

import java.util.List;
import java.util.stream.Stream;
import onager.failure.RefusedException;
import onager.spark43.Expressions;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import scala.collection.immutable.Seq;

/** The columns of a job's result: with the query's names, and with the types that clients see. */
final class ResultSchema {
    private ResultSchema() {}

    /** The attributes *output* as columns called *names*; null: with their own names. */
    static StructType named(Seq<Attribute> output, List<String> names) {
        var fields = new StructField[output.size()];
        int i = 0;
        for (Attribute a : Seqs.list(output)) {
            fields[i] = new StructField(names == null ? a.name() : names.get(i), a.dataType(), a.nullable(), a.metadata());
            i++;
        }
        return new StructType(fields);
    }

    private static boolean isText(StructField field) {
        return field.dataType() instanceof YearMonthIntervalType;
    }

    /** The result's schema as clients see it: Arrow readers do not support year-month intervals, so they become text. */
    static StructType shown(StructType schema) {
        return new StructType(Stream.of(schema.fields()).map(f -> {
            if (isText(f)) {
                return new StructField(f.name(), StringType$.MODULE$, f.nullable(), Metadata.empty());
            }
            if (hasInterval(f.dataType())) {
                throw new RefusedException("column " + f.name() + " has a year-month interval inside " + f.dataType().simpleString()
                        + ", which Arrow readers do not support: cast it to string");
            }
            return f;
        }).toArray(StructField[]::new));
    }

    private static boolean hasInterval(DataType type) {
        if (type instanceof ArrayType array) {
            return hasInterval(array.elementType());
        }
        if (type instanceof MapType map) {
            return hasInterval(map.keyType()) || hasInterval(map.valueType());
        }
        if (type instanceof StructType struct) {
            return Stream.of(struct.fields()).anyMatch(field -> hasInterval(field.dataType()));
        }
        return type instanceof YearMonthIntervalType;
    }

    /** The expressions that convert rows of *schema* to what clients see; null if nothing changes. */
    static Seq<Expression> projection(StructType schema, String zone) {
        var columns = new Expression[schema.fields().length];
        boolean any = false;
        for (int i = 0; i < columns.length; i++) {
            StructField f = schema.fields()[i];
            columns[i] = Expressions.column(i, f.dataType(), f.nullable());
            if (isText(f)) {
                columns[i] = Expressions.asText(columns[i], zone);
                any = true;
            }
        }
        return any ? Seqs.seq(columns) : null;
    }
}
