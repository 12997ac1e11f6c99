package onager.plan;

import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.WeakHashMap;
import onager.spark43.PythonSources;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Python data sources that give their partitions bit by bit. While a query is planned to be cut, each Python data source is wrapped: if
 * its reader has `partitions_after`, it gives the first partitions only, and two more, the reader, which knows what was pushed down, and a
 * mark. A stage that can grow gets the other partitions from its feed; any other gets what the reader's `partitions` returns.
 */
public final class PagedSources {
    private static final String PYTHON = "onager.executor.spark.source_portions";
    /** Nobody else's partition has this text. */
    private static final String MARK = "onager portion " + UUID.randomUUID();
    private static final int MAX_OF_MARK = 1_024;

    /** All partitions of readers, by these: several scans may be planned with one. */
    private static final Map<byte[], List<byte[]>> WHOLE = Collections.synchronizedMap(new WeakHashMap<>());

    private record Replaced(DataSourceV2Relation relation, byte[] before) {}

    private final List<Replaced> replaced = new ArrayList<>();

    private PagedSources() {}

    /** Lets the Python data sources in *analyzed* give the first partitions only, until `restore`; null if there are none. */
    public static PagedSources of(LogicalPlan analyzed) {
        boolean hasOurs = SparkEnv.get().conf().get("spark.python.daemon.module", "").startsWith("onager.");
        var made = new PagedSources();
        if (hasOurs) { // otherwise workers run in another Python, which may know nothing of Onager
            made.replaceIn(analyzed);
        }
        return made.replaced.isEmpty() ? null : made;
    }

    private void replaceIn(LogicalPlan plan) {
        if (plan instanceof DataSourceV2Relation relation && PythonSources.isOne(relation.table())
                && replaced.stream().noneMatch(each -> each.relation.table() == relation.table())) {
            byte[] before = PythonSources.pickled(relation);
            replaced.add(new Replaced(relation, before));
            PythonSources.replace(relation, PythonSources.pickledCall(PYTHON, "growing", before, MARK));
        }
        Queries.below(plan).forEach(this::replaceIn);
    }

    /** Lets the data sources give all of their partitions, in plans that are made from now on. */
    public void restore() {
        replaced.forEach(each -> PythonSources.replace(each.relation, each.before));
    }

    /** What is known of a scan's partitions: the *first* ones, and the pickled *reader* that gives the others. */
    private record Begun(UserDefinedPythonDataSource worker, List<byte[]> first, byte[] reader, StructType schema) {
        /** Returns null if the partitions of *scan* are all there are. */
        static Begun of(BatchScanExec scan) {
            if (scan.table() == null || !PythonSources.isOne(scan.table())) {
                return null;
            }
            var pickled = Seqs.list(scan.inputPartitions()).stream().map(PythonSources::pickled).toList();
            int count = pickled.size() - 2;
            return count > 0 && hasMark(pickled.get(count + 1))
                    ? new Begun(PythonSources.worker(scan.table()), pickled.subList(0, count), pickled.get(count), scan.scan().readSchema())
                    : null;
        }
    }

    /** Returns the partitions of *scan*, all of them. */
    static Seq<Option<InputPartition>> all(BatchScanExec scan) {
        var begun = Begun.of(scan);
        if (begun == null) {
            return scan.partitions();
        }
        var all = WHOLE.get(begun.reader);
        if (all == null) {
            all = PythonSources.partitions(begun.worker, PythonSources.pickledCall(PYTHON, "whole", begun.reader), begun.schema);
            WHOLE.put(begun.reader, all);
        }
        return PartitionsScanExec.some(PythonSources.partitions(all, 0));
    }

    /** What a feed asks for partitions. */
    private record Source(UserDefinedPythonDataSource worker, byte[] reader, byte[] first, StructType schema) implements Feeds.Source {
        @Override
        public String next(SparkSession session, byte[] before, String target) throws IOException, ClassNotFoundException {
            Portion last = Serialization.decode(before);
            byte[] next = PythonSources.pickledCall(PYTHON, "next_portion", reader, MARK, first, last.after);
            var found = PythonSources.partitions(worker, next, schema);
            boolean hasEnded = !hasMark(found.remove(found.size() - 1));
            Serialization.write(target, new Portion(found, found.isEmpty() ? last.after : found.get(found.size() - 1)));
            return found.size() + "\t" + found.size() + "\t" + (hasEnded ? "1" : "0");
        }
    }

    /** Partitions that were found together, and the one *after* which the feed goes on. */
    private record Portion(ArrayList<byte[]> partitions, byte[] after) implements Serializable {
        Portion(List<byte[]> partitions, byte[] after) {
            this(new ArrayList<>(partitions), after);
        }
    }

    /** A leaf whose partitions are those of a portion. */
    private record Growing(Seq<Attribute> output, PartitionReaderFactory readers, boolean isColumnar, String name) implements Feeds.Growing {
        @Override
        public SparkPlan leaf(SparkSession session, byte[] portion, int first) throws IOException, ClassNotFoundException {
            Portion found = Serialization.decode(portion);
            return PartitionsScanExec.of(output, PythonSources.partitions(found.partitions, first), readers, isColumnar, name);
        }
    }

    private static boolean hasMark(byte[] pickled) {
        return pickled.length < MAX_OF_MARK && new String(pickled, StandardCharsets.ISO_8859_1).contains(MARK + "+");
    }

    /**
     * Describes a scan of the first partitions of a source in the file *leaf*, for the stage, *source*, for its feed, and *portion*.
     *
     * @return null if these are all of its partitions, or they are all to be known now
     */
    static Leaves.Facts describe(BatchScanExec scan, String leaf, String source, String portion) throws IOException {
        var begun = scan.runtimeFilters().isEmpty() ? Begun.of(scan) : null;
        if (begun == null) {
            return null;
        }
        String name = PartitionsScanExec.name(scan);
        var output = Seqs.<Attribute>seq(Seqs.list(scan.output()));
        Serialization.write(leaf, new Growing(output, scan.readerFactory(), scan.supportsColumnar(), name));
        Serialization.write(source, new Source(begun.worker, begun.reader, begun.first.get(0), begun.schema));
        Serialization.write(portion, new Portion(begun.first, begun.first.get(begun.first.size() - 1)));
        return Leaves.Facts.of(PartitionsScanExec.bytes(scan.scan()), begun.first.size(), name, true);
    }
}
