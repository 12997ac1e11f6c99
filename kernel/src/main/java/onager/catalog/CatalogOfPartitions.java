package onager.catalog;

import java.net.URI;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import onager.plan.Guard;
import onager.spark43.CatalogCodec;
import onager.spark43.CatalogErrors;
import onager.values.Seqs;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;
import scala.collection.immutable.Seq;

/** A catalog's partitions: those of a table lie in its record, and are read page by page. */
abstract class CatalogOfPartitions extends CatalogOfSlots {
    /** Returns the session over this catalog. */
    public abstract SparkSession session();

    @Override
    public synchronized void createPartitions(String database, String name, Seq<CatalogTablePartition> made, boolean ignoreIfExists) {
        checkMayChange();
        TableRecord table = existing(database, name);
        var there = table.partitions(records);
        if (!ignoreIfExists) {
            requireNoPartitions(table, specs(made));
        }
        var root = table.newPartitionsAt(newId());
        for (var each : Seqs.list(made)) {
            String path = table.path(each.spec());
            if (!there.containsKey(path)) {
                URI location = each.storage().locationUri().getOrElse(() ->
                        ExternalCatalogUtils.generatePartitionPath(each.spec(), table.spark.partitionColumnNames(), root).toUri());
                table.change(records, path, CatalogCodec.at(each, each.spec(), location), !ignoreIfExists);
            }
        }
    }

    @Override
    public synchronized void dropPartitions(String database, String name, Seq<scala.collection.immutable.Map<String, String>> specs,
            boolean ignoreIfNotExists, boolean purge, boolean retainData) {
        checkMayChange();
        TableRecord table = existing(database, name);
        var found = Seqs.list(specs).stream().collect(Collectors.toMap(each -> each, each -> table.matching(records, Option.apply(each))));
        var missing = Seqs.list(specs).stream().filter(each -> found.get(each).isEmpty()).toList();
        if (!missing.isEmpty() && !ignoreIfNotExists) {
            throw CatalogErrors.noPartitions(database, name, missing);
        }
        found.values().stream().flatMap(Collection::stream).map(each -> table.path(each.spec())).distinct().toList()
                .forEach(path -> table.change(records, path, null, !ignoreIfNotExists));
    }

    @Override
    public synchronized void renamePartitions(String database, String name, Seq<scala.collection.immutable.Map<String, String>> from,
            Seq<scala.collection.immutable.Map<String, String>> to) {
        checkMayChange();
        TableRecord table = existing(database, name);
        requirePartitions(table, from);
        requireNoPartitions(table, to);
        var there = table.partitions(records);
        for (int i = 0; i < from.size(); i++) {
            CatalogTablePartition old = there.get(table.path(from.apply(i)));
            table.change(records, table.path(from.apply(i)), null, true);
            // Its files stay where they are.
            table.change(records, table.path(to.apply(i)), CatalogCodec.at(old, to.apply(i), old.location()), true);
        }
    }

    @Override
    public synchronized void alterPartitions(String database, String name, Seq<CatalogTablePartition> to) {
        checkMayChange();
        TableRecord table = existing(database, name);
        requirePartitions(table, specs(to));
        Seqs.list(to).forEach(each -> table.change(records, table.path(each.spec()), each, true));
    }

    /** Gives partitions of *table* that match, all without *partial*, folders of their own, in which there is nothing. */
    synchronized void emptyPartitions(CatalogTable table, Option<scala.collection.immutable.Map<String, String>> partial) {
        checkMayChange();
        String name = table.identifier().table();
        TableRecord record = existing(table.database(), name);
        var found = List.copyOf(record.matching(records, partial));
        if (found.isEmpty() && partial.isDefined() && partial.get().size() == table.partitionColumnNames().size()) {
            throw CatalogErrors.noPartitions(table.database(), name, List.of(partial.get()));
        }
        var folder = new Path(new Path(table.location()), Folders.within(newId()));
        for (CatalogTablePartition each : found) {
            URI location = ExternalCatalogUtils.generatePartitionPath(each.spec(), table.partitionColumnNames(), folder).toUri();
            record.change(records, record.path(each.spec()), CatalogCodec.at(each, each.spec(), location), true);
        }
        change(table.database(), name, CatalogCodec.withStats(table, Option.empty()));
    }

    private static Seq<scala.collection.immutable.Map<String, String>> specs(Seq<CatalogTablePartition> partitions) {
        return Seqs.seq(Seqs.list(partitions).stream().map(CatalogTablePartition::spec).toList());
    }

    private void requireNoPartitions(TableRecord table, Seq<scala.collection.immutable.Map<String, String>> specs) {
        var there = table.partitions(records);
        var taken = Seqs.list(specs).stream().filter(each -> there.containsKey(table.path(each))).toList();
        if (!taken.isEmpty()) {
            throw CatalogErrors.partitionsExist(table.spark.database(), table.spark.identifier().table(), taken);
        }
    }

    private void requirePartitions(TableRecord table, Seq<scala.collection.immutable.Map<String, String>> specs) {
        var there = table.partitions(records);
        var missing = Seqs.list(specs).stream().filter(each -> !there.containsKey(table.path(each))).toList();
        if (!missing.isEmpty()) {
            throw CatalogErrors.noPartitions(table.spark.database(), table.spark.identifier().table(), missing);
        }
    }

    @Override
    public synchronized CatalogTablePartition getPartition(String database, String name, scala.collection.immutable.Map<String, String> spec) {
        TableRecord table = existing(database, name);
        requirePartitions(table, Seqs.seq(List.of(spec)));
        return table.partitions(records).get(table.path(spec));
    }

    @Override
    public synchronized Option<CatalogTablePartition> getPartitionOption(String database, String name,
            scala.collection.immutable.Map<String, String> spec) {
        TableRecord table = existing(database, name);
        return Option.apply(table.partitions(records).get(table.path(spec)));
    }

    @Override
    public synchronized Seq<String> listPartitionNames(String database, String name,
            Option<scala.collection.immutable.Map<String, String>> partial) {
        TableRecord table = existing(database, name);
        return Seqs.seq(table.matching(records, partial).stream().map(each -> table.path(each.spec())).sorted().toList());
    }

    @Override
    public synchronized Seq<CatalogTablePartition> listPartitions(String database, String name,
            Option<scala.collection.immutable.Map<String, String>> partial) {
        return readable(existing(database, name).matching(records, partial));
    }

    @Override
    public synchronized Seq<CatalogTablePartition> listPartitionsByFilter(String database, String name, Seq<Expression> predicates,
            String timeZone) {
        TableRecord table = existing(database, name);
        var all = Seqs.seq(table.partitions(records).values());
        return readable(Seqs.list(ExternalCatalogUtils.prunePartitionsByFilter(table.spark, all, predicates, timeZone)));
    }

    /** Refuses partitions in private directories: the rule for reads sees only the tables' own. */
    private Seq<CatalogTablePartition> readable(Collection<CatalogTablePartition> partitions) {
        Guard.checkRead(session(), partitions.stream().map(each -> new Path(each.location())));
        return Seqs.seq(partitions);
    }
}
