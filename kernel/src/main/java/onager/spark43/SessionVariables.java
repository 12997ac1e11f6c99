package onager.spark43;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.catalog.TempVariableManager;
import org.apache.spark.sql.catalyst.catalog.VariableDefinition;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.mutable.HashMap;

/** The variables of a session's SQL (DECLARE, SET VAR), by their values: what gave a value is not run again. */
public final class SessionVariables {
    private static final Field DEFINITIONS = Fields.of(TempVariableManager.class, "variables");
    private static final String NAMESPACE = "session";

    private SessionVariables() {}

    /** A variable. *type*: a struct of it, as JSON; *value*: the `UnsafeRow` of that; *defaultSql*: what DEFAULT stands for. */
    public record Variable(String name, String type, byte[] value, String defaultSql) {}

    /** Throw an IllegalStateException if this Spark keeps variables in another way. */
    static void check() {}

    /** Return the variables of *session*, by name, as a JSON array of {@link Variable}. */
    public static String all(SparkSession session) {
        List<Variable> found = new ArrayList<>();
        for (var each : Seqs.each(definitions(manager(session)).iterator())) {
            Literal value = each._2().currentValue();
            StructType type = new StructType().add("value", value.dataType());
            byte[] row = UnsafeProjection.create(type).apply(InternalRow.fromSeq(Seqs.seq(value.value()))).getBytes();
            found.add(new Variable(each._1(), type.json(), row, each._2().defaultValueSQL()));
        }
        return Json.text(found);
    }

    /** Give *session*, of the variables called *name* in any case, just *variables*, a JSON array of {@link Variable}. */
    public static void make(SparkSession session, String name, String variables) {
        TempVariableManager manager = manager(session);
        for (String known : Seqs.list(definitions(manager).keys().toSeq())) {
            if (known.toLowerCase(Locale.ROOT).equals(name)) {
                manager.remove(Seqs.seq(known));
            }
        }
        for (Variable each : Json.read(variables, Variable[].class)) {
            DataType type = ((StructType) DataType.fromJson(each.type)).apply(0).dataType();
            var row = new UnsafeRow(1);
            row.pointTo(each.value, each.value.length);
            var identifier = Identifier.of(new String[] {NAMESPACE}, each.name);
            var definition = new VariableDefinition(identifier, each.defaultSql, new Literal(row.isNullAt(0) ? null : row.get(0, type), type));
            manager.create(Seqs.seq(each.name), definition, true);
        }
    }

    private static TempVariableManager manager(SparkSession session) {
        return session.sessionState().catalogManager().tempVariableManager();
    }

    @SuppressWarnings("unchecked")
    private static HashMap<String, VariableDefinition> definitions(TempVariableManager manager) {
        try {
            return (HashMap<String, VariableDefinition>) DEFINITIONS.get(manager);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException("the variables of a session cannot be read here", e);
        }
    }
}
