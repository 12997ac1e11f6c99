package onager.spark43;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.TreeMap;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.BucketSpec;
import org.apache.spark.sql.catalyst.catalog.CatalogColumnStat;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.CatalogFunction;
import org.apache.spark.sql.catalyst.catalog.CatalogStatistics;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.FunctionResource;
import org.apache.spark.sql.catalyst.catalog.FunctionResourceType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.math.BigInt;

/** The objects of Spark's catalog as JSON, every field of them, and back. A field that is absent has Spark's default. */
public final class CatalogCodec {
    private CatalogCodec() {}

    // ------------------------------------------------------------ to JSON

    public static ObjectNode of(CatalogDatabase database) {
        ObjectNode node = node();
        node.put("name", database.name()).put("description", database.description()).put("location", database.locationUri().toString());
        texts(node, "properties", database.properties());
        return node;
    }

    public static ObjectNode of(CatalogTable table) {
        ObjectNode node = node();
        TableIdentifier name = table.identifier();
        text(node, "catalog", name.catalog());
        text(node, "database", name.database());
        node.put("name", name.table()).put("tableType", table.tableType().name());
        node.set("storage", of(table.storage()));
        node.set("schema", Json.tree(table.schema().json()));
        text(node, "provider", table.provider());
        texts(node, "partitionColumnNames", table.partitionColumnNames());
        if (table.bucketSpec().isDefined()) {
            BucketSpec buckets = table.bucketSpec().get();
            ObjectNode spec = node.putObject("bucketSpec").put("numBuckets", buckets.numBuckets());
            texts(spec, "bucketColumnNames", buckets.bucketColumnNames());
            texts(spec, "sortColumnNames", buckets.sortColumnNames());
        }
        node.put("owner", table.owner()).put("createTime", table.createTime()).put("lastAccessTime", table.lastAccessTime());
        node.put("createVersion", table.createVersion());
        texts(node, "properties", table.properties());
        stats(node, table.stats());
        text(node, "viewText", table.viewText());
        text(node, "comment", table.comment());
        text(node, "collation", table.collation());
        texts(node, "unsupportedFeatures", table.unsupportedFeatures());
        node.put("tracksPartitionsInCatalog", table.tracksPartitionsInCatalog()).put("schemaPreservesCase", table.schemaPreservesCase());
        texts(node, "ignoredProperties", table.ignoredProperties());
        text(node, "viewOriginalText", table.viewOriginalText());
        if (table.multipartIdentifier().isDefined()) {
            ArrayNode parts = node.putArray("multipartIdentifier");
            Seqs.list(table.multipartIdentifier().get()).forEach(parts::add);
        }
        return node;
    }

    public static ObjectNode of(CatalogTablePartition partition) {
        ObjectNode node = node();
        texts(node, "spec", partition.spec());
        node.set("storage", of(partition.storage()));
        texts(node, "parameters", partition.parameters());
        node.put("createTime", partition.createTime()).put("lastAccessTime", partition.lastAccessTime());
        stats(node, partition.stats());
        return node;
    }

    public static ObjectNode of(CatalogFunction function) {
        ObjectNode node = node();
        FunctionIdentifier name = function.identifier();
        text(node, "catalog", name.catalog());
        text(node, "database", name.database());
        node.put("name", name.funcName()).put("className", function.className());
        ArrayNode resources = node.putArray("resources");
        Seqs.list(function.resources()).forEach(each -> resources.addObject().put("type", each.resourceType().resourceType()).put("uri", each.uri()));
        return node;
    }

    private static ObjectNode of(CatalogStorageFormat storage) {
        ObjectNode node = node();
        if (storage.locationUri().isDefined()) {
            node.put("location", storage.locationUri().get().toString());
        }
        text(node, "inputFormat", storage.inputFormat());
        text(node, "outputFormat", storage.outputFormat());
        text(node, "serde", storage.serde());
        text(node, "serdeName", storage.serdeName());
        node.put("compressed", storage.compressed());
        texts(node, "properties", storage.properties());
        return node;
    }

    private static void stats(ObjectNode to, Option<CatalogStatistics> given) {
        if (given.isEmpty()) {
            return;
        }
        CatalogStatistics stats = given.get();
        ObjectNode node = to.putObject("stats").put("sizeInBytes", stats.sizeInBytes().bigInteger());
        if (stats.rowCount().isDefined()) {
            node.put("rowCount", stats.rowCount().get().bigInteger());
        }
        if (!stats.colStats().isEmpty()) {
            ObjectNode columns = node.putObject("columns");
            new TreeMap<>(CollectionConverters.asJava(stats.colStats())).forEach((name, each) -> texts(columns, name, each.toMap("c")));
        }
    }

    private static ObjectNode node() {
        return JsonNodeFactory.instance.objectNode();
    }

    private static void text(ObjectNode node, String name, Option<String> value) {
        if (value.isDefined()) {
            node.put(name, value.get());
        }
    }

    private static void texts(ObjectNode node, String name, Seq<String> values) {
        if (!values.isEmpty()) {
            ArrayNode array = node.putArray(name);
            Seqs.list(values).forEach(array::add);
        }
    }

    private static void texts(ObjectNode node, String name, Map<String, String> values) {
        if (!values.isEmpty()) {
            ObjectNode object = node.putObject(name);
            new TreeMap<>(CollectionConverters.asJava(values)).forEach(object::put);
        }
    }

    // ------------------------------------------------------------ from JSON

    public static CatalogDatabase database(JsonNode node) {
        return new CatalogDatabase(node.path("name").asText(), node.path("description").asText(), URI.create(node.path("location").asText()),
                texts(node.path("properties")));
    }

    public static CatalogTable table(JsonNode node) {
        var name = new TableIdentifier(node.path("name").asText(), text(node, "database"), text(node, "catalog"));
        JsonNode buckets = node.path("bucketSpec");
        Option<BucketSpec> bucketSpec = buckets.isMissingNode() ? Option.empty()
                : Option.apply(new BucketSpec(buckets.path("numBuckets").asInt(), list(buckets.path("bucketColumnNames")),
                        list(buckets.path("sortColumnNames"))));
        JsonNode parts = node.path("multipartIdentifier");
        return new CatalogTable(name, new CatalogTableType(node.path("tableType").asText()), storage(node.path("storage")),
                (StructType) DataType.fromJson(Json.text(node.path("schema"))), text(node, "provider"), list(node.path("partitionColumnNames")),
                bucketSpec, node.path("owner").asText(), node.path("createTime").asLong(), node.path("lastAccessTime").asLong(-1),
                node.path("createVersion").asText(), texts(node.path("properties")), stats(node.path("stats")), text(node, "viewText"),
                text(node, "comment"), text(node, "collation"), list(node.path("unsupportedFeatures")),
                node.path("tracksPartitionsInCatalog").asBoolean(), node.path("schemaPreservesCase").asBoolean(true),
                texts(node.path("ignoredProperties")), text(node, "viewOriginalText"),
                parts.isMissingNode() ? Option.empty() : Option.apply(list(parts)));
    }

    public static CatalogTablePartition partition(JsonNode node) {
        return new CatalogTablePartition(texts(node.path("spec")), storage(node.path("storage")), texts(node.path("parameters")),
                node.path("createTime").asLong(), node.path("lastAccessTime").asLong(-1), stats(node.path("stats")));
    }

    public static CatalogFunction function(JsonNode node) {
        var name = new FunctionIdentifier(node.path("name").asText(), text(node, "database"), text(node, "catalog"));
        List<FunctionResource> resources = new ArrayList<>();
        node.path("resources").forEach(each -> resources.add(
                new FunctionResource(FunctionResourceType.fromString(each.path("type").asText()), each.path("uri").asText())));
        return new CatalogFunction(name, node.path("className").asText(), Seqs.seq(resources));
    }

    private static CatalogStorageFormat storage(JsonNode node) {
        return new CatalogStorageFormat(text(node, "location").map(URI::create), text(node, "inputFormat"), text(node, "outputFormat"),
                text(node, "serde"), node.path("compressed").asBoolean(), texts(node.path("properties")), text(node, "serdeName"));
    }

    private static Option<CatalogStatistics> stats(JsonNode node) {
        if (node.isMissingNode()) {
            return Option.empty();
        }
        var columns = new HashMap<String, CatalogColumnStat>();
        node.path("columns").properties().forEach(each -> {
            Option<CatalogColumnStat> stat = CatalogColumnStat.fromMap("", "c", texts(each.getValue()));
            if (stat.isDefined()) {
                columns.put(each.getKey(), stat.get());
            }
        });
        Option<BigInt> rows = node.has("rowCount") ? Option.apply(new BigInt(node.path("rowCount").bigIntegerValue())) : Option.empty();
        return Option.apply(new CatalogStatistics(new BigInt(node.path("sizeInBytes").bigIntegerValue()), rows, Seqs.map(columns)));
    }

    private static Option<String> text(JsonNode node, String name) {
        return node.has(name) ? Option.apply(node.get(name).asText()) : Option.empty();
    }

    private static Seq<String> list(JsonNode node) {
        var items = new ArrayList<String>();
        node.forEach(each -> items.add(each.asText()));
        return Seqs.seq(items);
    }

    private static Map<String, String> texts(JsonNode node) {
        var entries = new HashMap<String, String>();
        node.properties().forEach(each -> entries.put(each.getKey(), each.getValue().isNull() ? null : each.getValue().asText()));
        return Seqs.map(entries);
    }

    // ------------------------------------------------------------ made, and copied

    public static CatalogDatabase database(String name, String description, URI location) {
        return new CatalogDatabase(name, description, location, Seqs.map(java.util.Map.of()));
    }

    public static CatalogTable withSchema(CatalogTable of, StructType schema) {
        return copy(of, of.identifier(), of.storage(), schema, of.properties(), of.stats());
    }

    public static CatalogTable withStats(CatalogTable of, Option<CatalogStatistics> stats) {
        return copy(of, of.identifier(), of.storage(), of.schema(), of.properties(), stats);
    }

    public static CatalogTable withName(CatalogTable of, String database, String name) {
        return copy(of, new TableIdentifier(name, Option.apply(database)), of.storage(), of.schema(), of.properties(), of.stats());
    }

    public static CatalogTable withName(CatalogTable of, TableIdentifier name) {
        return copy(of, name, of.storage(), of.schema(), of.properties(), of.stats());
    }

    public static CatalogTable withProperties(CatalogTable of, Map<String, String> properties) {
        return copy(of, of.identifier(), of.storage(), of.schema(), properties, of.stats());
    }

    public static CatalogTable at(CatalogTable of, URI location) {
        return copy(of, of.identifier(), at(of.storage(), location), of.schema(), of.properties(), of.stats());
    }

    /** Return the partition *of* as *spec*, with its files at *location*. */
    public static CatalogTablePartition at(CatalogTablePartition of, Map<String, String> spec, URI location) {
        return new CatalogTablePartition(spec, at(of.storage(), location), of.parameters(), of.createTime(), of.lastAccessTime(), of.stats());
    }

    /** Return a partition such as new ones of *table* are, that is not yet any, and lies nowhere. */
    public static CatalogTablePartition partitionLike(CatalogTable table) {
        return new CatalogTablePartition(Seqs.map(java.util.Map.of()), at(table.storage(), null), Seqs.map(java.util.Map.of()),
                System.currentTimeMillis(), -1, Option.empty());
    }

    private static CatalogStorageFormat at(CatalogStorageFormat of, URI location) {
        return new CatalogStorageFormat(Option.apply(location), of.inputFormat(), of.outputFormat(), of.serde(), of.compressed(),
                of.properties(), of.serdeName());
    }

    public static CatalogFunction withName(CatalogFunction of, String database, String name) {
        return new CatalogFunction(new FunctionIdentifier(name, Option.apply(database)), of.className(), of.resources());
    }

    /** Return *of*, the catalog knowing its partitions. */
    public static CatalogTable withTrackedPartitions(CatalogTable of) {
        return copy(of, of.identifier(), of.storage(), of.schema(), of.properties(), of.stats(), true);
    }

    private static CatalogTable copy(CatalogTable of, TableIdentifier name, CatalogStorageFormat storage, StructType schema,
            Map<String, String> properties, Option<CatalogStatistics> stats) {
        return copy(of, name, storage, schema, properties, stats, of.tracksPartitionsInCatalog());
    }

    private static CatalogTable copy(CatalogTable of, TableIdentifier name, CatalogStorageFormat storage, StructType schema,
            Map<String, String> properties, Option<CatalogStatistics> stats, boolean tracksPartitions) {
        return new CatalogTable(name, of.tableType(), storage, schema, of.provider(), of.partitionColumnNames(), of.bucketSpec(), of.owner(),
                of.createTime(), of.lastAccessTime(), of.createVersion(), properties, stats, of.viewText(), of.comment(), of.collation(),
                of.unsupportedFeatures(), tracksPartitions, of.schemaPreservesCase(), of.ignoredProperties(),
                of.viewOriginalText(), of.multipartIdentifier());
    }
}
