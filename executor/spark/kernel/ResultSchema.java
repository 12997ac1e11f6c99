package onager.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import scala.collection.immutable.Seq;

/** What columns a job's result has: under the query's names, and as clients see them. */
final class ResultSchema {
    private ResultSchema() {}

    /** The attributes *output* as columns called *names*, a JSON list, or as they are called themselves. */
    static StructType named(Seq output, JsonNode names) {
        StructField[] fields = new StructField[output.size()];
        for (int i = 0; i < fields.length; i++) {
            Attribute a = (Attribute) output.apply(i);
            String name = names == null || names.isNull() ? a.name() : ((JsonNode) names.get(i)).asText();
            fields[i] = new StructField(name, a.dataType(), a.nullable(), a.metadata());
        }
        return new StructType(fields);
    }

    /** The result's schema as clients see it: Arrow's readers know no year-month intervals, so those are text. */
    static StructType shown(StructType schema) {
        StructField[] fields = new StructField[schema.fields().length];
        for (int i = 0; i < fields.length; i++) {
            StructField f = schema.fields()[i];
            boolean text = f.dataType() instanceof YearMonthIntervalType;
            if (!text && nested(f.dataType())) {
                throw new RefusedException("column " + f.name() + " holds a year-month interval inside " + f.dataType().simpleString()
                        + ", which no Arrow reader takes: cast it to string");
            }
            fields[i] = text ? new StructField(f.name(), StringType$.MODULE$, f.nullable(), Metadata.empty()) : f;
        }
        return new StructType(fields);
    }

    private static boolean nested(DataType type) {
        if (type instanceof ArrayType) {
            return nested(((ArrayType) type).elementType());
        }
        if (type instanceof MapType) {
            return nested(((MapType) type).keyType()) || nested(((MapType) type).valueType());
        }
        if (type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            for (int i = 0; i < fields.length; i++) {
                if (nested(fields[i].dataType())) {
                    return true;
                }
            }
        }
        return type instanceof YearMonthIntervalType;
    }

    /** The expressions that make rows of *schema* into rows of what is shown of it, or null where they are the same. */
    static Seq projection(StructType schema, String zone) {
        Object[] columns = new Object[schema.fields().length];
        boolean any = false;
        for (int i = 0; i < columns.length; i++) {
            StructField f = schema.fields()[i];
            boolean text = f.dataType() instanceof YearMonthIntervalType;
            any = any || text;
            columns[i] = Spark43.column(i, f.dataType(), f.nullable(), text, zone);
        }
        return any ? Kernel.seq(columns) : null;
    }
}
