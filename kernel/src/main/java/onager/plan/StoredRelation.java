package onager.plan;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import onager.spark43.Adaptive;
import onager.values.Seqs;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * A relation of files in a logical plan that is stored: its files as they were listed once, or, while they are being listed for a growing
 * stage, how large it counts. It equals only itself.
 */
@SuppressWarnings("serial") // Scala's sequences are serialisable, and do not say so
final class StoredRelation extends LogicalPlan implements Serializable {
    private final ArrayList<AttributeReference> output;
    private final StructType partitionSchema;
    private final StructType dataSchema;
    private final String format;
    private final HashMap<String, String> options;
    private final ArrayList<String> roots;
    private final ArrayList<Leaves.Directory> directories;
    private final Growing growing;

    private record Growing(boolean isFlat, long bytes) implements Serializable {}

    StoredRelation(LogicalRelation of, HadoopFsRelation relation) {
        this.output = new ArrayList<>(Seqs.list(of.output()));
        this.partitionSchema = relation.partitionSchema();
        this.dataSchema = relation.dataSchema();
        this.format = relation.fileFormat().getClass().getName();
        this.options = new HashMap<>(scala.jdk.javaapi.CollectionConverters.asJava(relation.options()));
        this.roots = new ArrayList<>(Seqs.list(relation.location().rootPaths()).stream().map(Path::toString).toList());
        if (relation.location() instanceof GrowingFileIndex index && !index.isListed()) {
            this.growing = new Growing(index.place().isFlat(), index.sizeInBytes());
            this.directories = new ArrayList<>();
        } else {
            this.growing = null;
            var listed = relation.location().listFiles(Seqs.seq(), Seqs.seq());
            this.directories = new ArrayList<>(Seqs.list(listed).stream().map(Leaves.Directory::of).toList());
        }
    }

    /** Returns the relation, for plans of *session*. */
    LogicalPlan relation(SparkSession session) throws IOException, ReflectiveOperationException {
        var loader = Thread.currentThread().getContextClassLoader();
        var made = (FileFormat) Class.forName(format, true, loader).getConstructor().newInstance();
        return Adaptive.relation(files(session), dataSchema, made, Seqs.map(Map.copyOf(options)), session, output);
    }

    private FileIndex files(SparkSession session) throws IOException {
        if (growing != null) {
            return new GrowingFileIndex(Feeds.Place.of(session, roots.get(0), options, growing.isFlat), partitionSchema, growing.bytes);
        }
        Seq<Path> paths = Seqs.seq(roots.stream().map(Path::new).toList());
        return new FixedFileIndex(paths, directories.stream().map(Leaves.Directory::listed).toList(), partitionSchema);
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
