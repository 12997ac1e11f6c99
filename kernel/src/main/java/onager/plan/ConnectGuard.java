package onager.plan;

import java.util.Collection;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import onager.failure.RefusedException;
import onager.spark43.ConnectSession;
import org.apache.spark.connect.proto.Catalog.CatTypeCase;
import org.apache.spark.connect.proto.DataType;
import org.apache.spark.connect.proto.ExecutePlanRequest;
import org.apache.spark.connect.proto.Expression;
import org.apache.spark.connect.proto.Parse;
import org.apache.spark.connect.proto.Read.DataSource;
import org.apache.spark.connect.proto.Read.NamedTable;
import org.apache.spark.connect.proto.Relation;
import org.apache.spark.connect.proto.ScalarScalaUDF;
import org.apache.spark.connect.proto.WriteOperation;
import org.apache.spark.connect.proto.WriteOperationV2;
import org.apache.spark.sql.classic.SparkSession;
import org.sparkproject.connect.protobuf.Message;

/**
 * Refuses messages of Spark Connect by what is in them, at any depth, before Spark looks at them: while it makes a plan of one, it already
 * connects to sources, loads classes, and deserialises objects.
 */
public final class ConnectGuard {
    /** The classes of types that a client may name. */
    private static final Set<String> TYPES = Set.of("org.apache.spark.ml.linalg.VectorUDT", "org.apache.spark.ml.linalg.MatrixUDT",
            "org.apache.spark.mllib.linalg.VectorUDT", "org.apache.spark.mllib.linalg.MatrixUDT");

    /** Calls of spark.catalog that change nothing. */
    private static final Set<CatTypeCase> LOOKING = EnumSet.of(CatTypeCase.CURRENT_CATALOG, CatTypeCase.CURRENT_DATABASE,
            CatTypeCase.DATABASE_EXISTS, CatTypeCase.FUNCTION_EXISTS, CatTypeCase.GET_CREATE_TABLE_STRING, CatTypeCase.GET_DATABASE,
            CatTypeCase.GET_FUNCTION, CatTypeCase.GET_TABLE, CatTypeCase.GET_TABLE_PROPERTIES, CatTypeCase.IS_CACHED,
            CatTypeCase.LIST_CATALOGS, CatTypeCase.LIST_COLUMNS, CatTypeCase.LIST_DATABASES, CatTypeCase.LIST_FUNCTIONS,
            CatTypeCase.LIST_PARTITIONS, CatTypeCase.LIST_TABLES, CatTypeCase.LIST_VIEWS, CatTypeCase.TABLE_EXISTS);

    private final SparkSession session;

    private ConnectGuard(SparkSession session) {
        this.session = session;
    }

    /** Return a session of Spark Connect in *session*, which is nobody else's, for *user*. */
    public static ConnectSession session(SparkSession session, String user) {
        var guard = new ConnectGuard(session);
        return new ConnectSession(session, user, message -> guard.check(message, message instanceof ExecutePlanRequest request
                && request.getPlan().getRoot().hasCatalog() ? request.getPlan().getRoot() : null));
    }

    /** Throws if a part of *message* is refused; *call*: the part that may be a call of spark.catalog, which Spark carries out. */
    private void check(Message message, Relation call) {
        if (message instanceof Relation relation) {
            if (relation.hasMlRelation() || relation.hasExtension()) {
                throw refused(relation.hasExtension() ? "a relation of a plugin" : "machine learning on the server", "use functions of Spark SQL");
            }
            if (relation.hasCatalog() && relation != call && !LOOKING.contains(relation.getCatalog().getCatTypeCase())) {
                throw refused("a relation with a call of spark.catalog that changes something in it", "call it by itself");
            }
        } else if (message instanceof Expression expression && expression.hasExtension()) {
            throw refused("an expression of a plugin", "use functions of Spark SQL");
        } else if (message instanceof ScalarScalaUDF) {
            throw refused("a function in Scala or Java, as the client has compiled it,", "write it in Python, or in SQL");
        } else if (message instanceof DataType.UDT type && type.hasJvmClass() && !TYPES.contains(type.getJvmClass())) {
            throw refused("a type of the class " + type.getJvmClass(), "use types of Spark SQL");
        } else if (message instanceof DataSource source) {
            checkSource(source.getFormat(), source.getOptionsMap());
            if (source.getPredicatesCount() > 0) {
                GuardedRequests.checkFormat(session, "jdbc");
            }
        } else if (message instanceof NamedTable table) {
            table.getOptionsMap().forEach(Guard::checkOption);
        } else if (message instanceof Parse parse) {
            parse.getOptionsMap().forEach(Guard::checkOption);
        } else if (message instanceof WriteOperation write) {
            checkSource(write.getSource(), write.getOptionsMap());
        } else if (message instanceof WriteOperationV2 write) {
            checkSource(write.getProvider(), write.getOptionsMap());
        }
        for (Object field : message.getAllFields().values()) {
            for (Object each : field instanceof Collection<?> many ? many : List.of(field)) {
                if (each instanceof Message inner) {
                    check(inner, call);
                }
            }
        }
    }

    private void checkSource(String given, Map<String, String> options) {
        String format = given.isEmpty() ? session.sessionState().conf().defaultDataSourceName() : given;
        if (!GuardedRequests.checkFormat(session, format)) {
            options.forEach(Guard::checkOption);
        }
    }

    private static RefusedException refused(String what, String advice) {
        return new RefusedException(what + " is refused: " + advice);
    }
}
