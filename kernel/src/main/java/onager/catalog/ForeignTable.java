package onager.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Supplier;
import java.util.stream.Stream;
import onager.plan.FixedFileIndex;
import onager.spark43.Adaptive;
import onager.spark43.Expressions;
import onager.spark43.Files;
import onager.spark43.ForeignRows;
import onager.spark43.Nodes;
import onager.values.Seqs;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** A table of another catalog at one snapshot. What it has is Parquet files, which Spark's own scan reads as for any other relation. */
public final class ForeignTable implements Table {
    /** Columns are looked for by their ids, where the schema that is read has some. */
    private static final String BY_ID = "spark.sql.parquet.fieldId.read.enabled";

    private final String catalog;
    private final List<String> parts;
    private final JsonNode described;
    private final Supplier<JsonNode> listing;
    private final StructType schema;
    private Listed files = null;

    /** *described* and *listing*: what Python answers to "table" and "files". */
    ForeignTable(String catalog, List<String> parts, JsonNode described, Supplier<JsonNode> listing) {
        this.catalog = catalog;
        this.parts = parts;
        this.described = described;
        this.listing = listing;
        this.schema = (StructType) DataType.fromJson(described.get("schema").asText());
    }

    String catalog() {
        return catalog;
    }

    List<String> parts() {
        return parts;
    }

    @Override
    public String name() {
        return catalog + "." + String.join(".", parts);
    }

    @Override
    public Column[] columns() {
        return CatalogV2Util.structTypeToV2Columns(schema, false);
    }

    @Override
    public Transform[] partitioning() {
        var found = new ArrayList<Transform>();
        described.get("partitioning").forEach(each -> found.add(ForeignRows.transform(each.get(0).asText(), each.get(1).asText())));
        return found.toArray(Transform[]::new);
    }

    @Override
    public Map<String, String> properties() {
        return texts(described.get("properties"));
    }

    static Map<String, String> texts(JsonNode node) {
        var found = new TreeMap<String, String>();
        node.properties().forEach(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.TRUNCATE,
                TableCapability.OVERWRITE_BY_FILTER, TableCapability.OVERWRITE_DYNAMIC);
    }

    /** Returns the relation of its files, whose columns are *output*. */
    LogicalPlan relation(SparkSession session, List<AttributeReference> output) {
        Listed found = files();
        StructType data = Files.without(session, found.columns, found.index.partitionSchema());
        var format = Files.format(session, "parquet");
        if (!described.get("by_id").asBoolean()) {
            return Adaptive.relation(found.index, data, format, Seqs.map(Map.of()), session, output);
        }
        session.sessionState().conf().setConfString(BY_ID, "true");
        var columns = Stream.of(found.columns.fields()).map(Expressions::attribute).toList();
        LogicalPlan relation = Adaptive.relation(found.index, data, format, Seqs.map(Map.of()), session, columns);
        var named = new ArrayList<NamedExpression>();
        for (int i = 0; i < columns.size(); i++) {
            named.add(Expressions.renamed(columns.get(i), output.get(i)));
        }
        return Nodes.project(Seqs.seq(named), relation);
    }

    /** *columns*: all, as they are looked for in files. */
    private record Listed(StructType columns, FixedFileIndex index) {}

    private synchronized Listed files() {
        if (files == null) {
            JsonNode found = listing.get();
            var partitions = (StructType) DataType.fromJson(found.get("partition_schema").asText());
            var directories = new ArrayList<PartitionDirectory>();
            var roots = new TreeSet<>(Set.of(location()));
            for (JsonNode each : found.get("directories")) {
                var statuses = new FileStatus[each.get("paths").size()];
                for (int i = 0; i < statuses.length; i++) {
                    var path = new Path(each.get("paths").get(i).asText());
                    statuses[i] = new FileStatus(each.get("sizes").get(i).asLong(), false, 1, 0, 0, path);
                    roots.add(root(path));
                }
                directories.add(PartitionDirectory.apply(ForeignRows.row(each.get("values"), partitions), statuses));
            }
            var index = new FixedFileIndex(Seqs.seq(roots.stream().map(Path::new).toList()), directories, partitions);
            files = new Listed((StructType) DataType.fromJson(found.get("schema").asText()), index);
        }
        return files;
    }

    private String location() {
        return described.get("location").asText();
    }

    /** Returns what tells where *path* is: the table's location, or its folder, where files were added from elsewhere. */
    private String root(Path path) {
        return path.toString().startsWith(new Path(location()) + "/") ? location() : path.getParent().toString();
    }

    @Override
    public String toString() {
        return name();
    }
}
