package onager.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import onager.failure.RefusedException;
import onager.spark43.CatalogErrors;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogWithListener;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A catalog other than Onager's own, for the session of one planning: what it has is asked of Python, where the catalog's client is. It is
 * read here, and never changed.
 */
public final class ForeignCatalog implements TableCatalog, SupportsNamespaces {
    private final Map<List<Object>, ForeignTable> tables = new HashMap<>();
    private String name = "";

    @Override
    public void initialize(String given, CaseInsensitiveStringMap options) {
        name = given;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Table loadTable(Identifier ident) {
        return table(ident, "", 0);
    }

    @Override
    public Table loadTable(Identifier ident, String version) {
        return table(ident, version, 0);
    }

    @Override
    public Table loadTable(Identifier ident, long timestampUs) {
        return table(ident, "", timestampUs);
    }

    private synchronized ForeignTable table(Identifier ident, String version, long timestampUs) {
        List<String> parts = Stream.concat(Stream.of(ident.namespace()), Stream.of(ident.name())).toList();
        return tables.computeIfAbsent(List.of(parts, version, timestampUs), key -> {
            Map<String, Object> at = Map.of("identifier", parts, "version", version, "timestamp_us", timestampUs);
            JsonNode described = ask("table", at);
            if (described == null) {
                throw CatalogErrors.noTable(ident);
            }
            return new ForeignTable(name, parts, described, () -> ask("files", at));
        });
    }

    /** Returns the answer, or null if what is asked for is not there. */
    private JsonNode ask(String what, Map<String, Object> with) {
        var request = new HashMap<String, Object>(with);
        request.put("what", what);
        request.put("catalog", name);
        JsonNode answer = reads().foreign(request);
        if (answer.has("refused")) {
            throw new RefusedException(answer.get("refused").asText());
        }
        return answer.has("missing") ? null : answer;
    }

    private JsonNode askOf(String[] namespace, String what) {
        JsonNode answer = ask(what, Map.of("identifier", List.of(namespace)));
        if (answer == null) {
            throw CatalogErrors.noNamespace(namespace);
        }
        return answer;
    }

    private OnagerCatalog reads() {
        var session = (SparkSession) org.apache.spark.sql.SparkSession.active();
        if (session.sessionState().catalog().externalCatalog() instanceof ExternalCatalogWithListener listening
                && listening.unwrapped() instanceof OnagerCatalog own) {
            return own;
        }
        throw new RefusedException("tables of the catalog " + name + " can be named only while a job is planned");
    }

    @Override
    public Identifier[] listTables(String[] namespace) {
        JsonNode answer = askOf(namespace, "tables");
        var found = new ArrayList<Identifier>();
        answer.get("names").forEach(each -> found.add(Identifier.of(namespace, each.asText())));
        return found.toArray(Identifier[]::new);
    }

    @Override
    public String[][] listNamespaces() {
        return listNamespaces(new String[0]);
    }

    @Override
    public String[][] listNamespaces(String[] namespace) {
        JsonNode answer = askOf(namespace, "namespaces");
        var found = new ArrayList<String[]>();
        answer.get("names").forEach(each -> {
            var parts = new ArrayList<String>();
            each.forEach(part -> parts.add(part.asText()));
            found.add(parts.toArray(String[]::new));
        });
        return found.toArray(String[][]::new);
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) {
        JsonNode answer = askOf(namespace, "namespace");
        return ForeignTable.texts(answer.get("properties"));
    }

    // ------------------------------------------------------------ never changed here

    private RefusedException refused(String what) {
        return new RefusedException(what + " of the catalog " + name + " is not Onager's to change: use the catalog's own tools");
    }

    @Override
    public Table createTable(Identifier ident, TableInfo info) {
        throw refused("the table " + ident);
    }

    @Override
    public Table alterTable(Identifier ident, TableChange... changes) {
        throw refused("the table " + ident);
    }

    @Override
    public boolean dropTable(Identifier ident) {
        throw refused("the table " + ident);
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw refused("the table " + from);
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata) {
        throw refused("the namespace " + String.join(".", namespace));
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw refused("the namespace " + String.join(".", namespace));
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        throw refused("the namespace " + String.join(".", namespace));
    }
}
