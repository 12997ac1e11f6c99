package onager.plan;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import onager.spark43.Adaptive;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * A relation of files in a logical plan that is stored: its files as they were listed once, or, while they are being listed for a growing
 * stage, how large it counts. It equals only itself.
 */
@SuppressWarnings("serial") // Scala's sequences are serialisable, and do not say so
final class StoredRelation extends LogicalPlan implements Serializable {
    private final ArrayList<AttributeReference> output;
    private final StoredFiles files;
    private final Growing growing;

    private record Growing(boolean isFlat, long bytes) implements Serializable {}

    StoredRelation(LogicalRelation of, HadoopFsRelation relation) {
        this.output = new ArrayList<>(Seqs.list(of.output()));
        if (relation.location() instanceof GrowingFileIndex index && !index.isListed()) {
            this.growing = new Growing(index.place().isFlat(), index.sizeInBytes());
            this.files = StoredFiles.of(relation, List.of());
        } else {
            this.growing = null;
            this.files = StoredFiles.of(relation, Seqs.list(relation.location().listFiles(Seqs.seq(), Seqs.seq())));
        }
    }

    /** Returns the relation, for plans of *session*. */
    LogicalPlan relation(SparkSession session) throws IOException, ReflectiveOperationException {
        FileIndex index = growing == null ? files.index()
                : new GrowingFileIndex(Feeds.Place.of(session, files.roots().get(0), files.options(), growing.isFlat), files.partitionSchema(),
                        growing.bytes);
        return Adaptive.relation(index, files.dataSchema(), files.newFormat(), Seqs.map(Map.copyOf(files.options())), session, output);
    }

    @Override
    public Seq<Attribute> output() {
        return Seqs.seq(List.<Attribute>copyOf(output));
    }

    @Override
    public Seq<LogicalPlan> children() {
        return Seqs.seq();
    }

    @Override
    public LogicalPlan withNewChildrenInternal(IndexedSeq<LogicalPlan> children) {
        return this;
    }

    @Override
    public int productArity() {
        return 1;
    }

    @Override
    public Object productElement(int n) {
        return output();
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof StoredRelation;
    }

    @Override
    public boolean equals(Object other) {
        return this == other;
    }

    @Override
    public int hashCode() {
        return System.identityHashCode(this);
    }
}
