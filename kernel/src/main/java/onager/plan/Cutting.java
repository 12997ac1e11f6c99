package onager.plan;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import onager.spark43.Nodes;
import onager.values.Json;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.physical.RangePartitioning;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;

/**
 * One physical plan, as the planner cuts it: the outline goes out in one call, the leaves are described in one, and all fragments are made in
 * one. Nodes are named by their places in the outline. What is large goes to files of a directory.
 */
public final class Cutting {
    private final SparkSession session;
    private final Path scratch;
    private final Outline outline;

    public Cutting(SparkSession session, SparkPlan plan, String scratch) {
        this.session = session;
        this.scratch = Path.of(scratch);
        this.outline = Outline.of(plan);
    }

    /** Returns the nodes as JSON: see `Outline.Node`. */
    public String outline() {
        return Json.text(outline.described);
    }

    /** The leaf *node*; if it *mayGrow*, what is not listed yet may be left to a feed. */
    record Leaf(int node, boolean mayGrow) {}

    /** Which digests leaves get: none, those by which stages are reused, or those by which cached rows are known to be stale. */
    enum Digests {
        NONE, REUSED, CACHED
    }

    /**
     * Describes *leaves*, a JSON list of `Leaf`, in files: {@code leaf-NODE}, and for one that grows {@code -source} and {@code -portion}.
     *
     * @return JSON, a `Leaves.Facts` for each, with *digests* as `Digests` says; the list ends with null for a leaf that cannot be described,
     *     or whose description has more than *maxBytes*
     */
    public String describe(String leaves, long maxBytes, String digests) throws Exception {
        var described = new ArrayList<Leaves.Facts>();
        for (Leaf leaf : Json.read(leaves, Leaf[].class)) {
            String target = scratch.resolve("leaf-" + leaf.node).toString();
            Leaves.Facts facts = Leaves.describe(node(leaf.node), session, leaf.mayGrow, maxBytes, target);
            described.add(facts == null || facts.grows() ? facts : switch (Digests.valueOf(digests)) {
                case NONE -> facts;
                case REUSED -> facts.withDigest(Fingerprint.ofLeaf(target));
                case CACHED -> facts.withDigest(Fingerprint.ofCachedLeaf(target));
            });
            if (facts == null) {
                break;
            }
        }
        return Json.text(described);
    }

    /**
     * What {@code make} says: a placeholder, one with a bucket, one with all columns of cached rows, *node* over *child*, *node* in one task,
     * or *child* under *node*'s filters.
     */
    enum Make {
        PLACEHOLDER, BUCKETED, CACHED, OVER, IN_ONE_TASK, FILTERED
    }

    /** What replaces a node: *name* is that of a placeholder with the columns of *node*, and *tasks* read *child* under filters. */
    record Part(Make make, int node, String name, Part child, int tasks) {}

    record Replaced(int node, Part by) {}

    /**
     * A stage: it computes *root*, *replaced* in their order, below *limit*'s local limit. The output goes to *exchange*, whose bucket it
     * carries or by whose order it is sorted. Null: there is none.
     */
    record Stage(int root, List<Replaced> replaced, Integer limit, Integer exchange, boolean carriesBucket, boolean isSorted, boolean hasDigest) {}

    record Stages(List<Stage> stages, List<Integer> expressions) {}

    /** What was made of a stage. *digest*: null if it has none. */
    record Made(String text, long expectedRows, String digest) {}

    /**
     * Makes the fragments of *stages*, JSON of `Stages`, in the files {@code fragment-PLACE}; and for each exchange in *expressions* the
     * expression of a row's bucket, or the ordering of the rows, in the file {@code expression-NODE}.
     *
     * @return JSON, a `Made` for each stage
     */
    public String make(String stages) throws IOException {
        var wanted = Json.read(stages, Stages.class);
        var made = new ArrayList<Made>();
        for (Stage stage : wanted.stages) {
            SparkPlan fragment = fragment(stage);
            Serialization.write(scratch.resolve("fragment-" + made.size()).toString(), fragment);
            SparkPlan exchange = stage.exchange == null ? null : node(stage.exchange);
            String digest = stage.hasDigest ? Fingerprint.of(fragment, exchange) : null;
            made.add(new Made(fragment.treeString(), stage.limit == null ? Queries.expectedRows(node(stage.root)) : -1, digest));
        }
        for (int place : wanted.expressions) {
            SparkPlan exchange = node(place);
            Object expression = exchange.outputPartitioning() instanceof RangePartitioning ranges ? ranges.ordering()
                    : Buckets.expression((ShuffleExchangeExec) exchange);
            Serialization.write(scratch.resolve("expression-" + place).toString(), expression);
        }
        return Json.text(made);
    }

    private SparkPlan fragment(Stage stage) {
        var map = new IdentityHashMap<SparkPlan, SparkPlan>();
        stage.replaced.forEach(each -> map.put(node(each.node), made(each.by, map)));
        SparkPlan top = stage.carriesBucket ? Buckets.added((ShuffleExchangeExec) node(stage.exchange)) : node(stage.root);
        SparkPlan fragment = Fragments.replaced(top, map);
        if (stage.limit != null) {
            fragment = Fragments.localLimit(node(stage.limit), fragment);
        }
        return stage.isSorted ? Nodes.sorted(((RangePartitioning) node(stage.exchange).outputPartitioning()).ordering(), fragment) : fragment;
    }

    /** *map*: what has been replaced so far. */
    private SparkPlan made(Part part, Map<SparkPlan, SparkPlan> map) {
        SparkPlan node = node(part.node);
        return switch (part.make) {
            case PLACEHOLDER -> Nodes.placeholder(node.session().sparkContext(), node.output(), part.name);
            case BUCKETED -> Buckets.removed(node, part.name);
            case CACHED -> cached((InMemoryTableScanExec) node, part.name);
            case OVER -> node.withNewChildren(Seqs.seq(made(part.child, map)));
            case IN_ONE_TASK -> Nodes.inOneTask(Fragments.replaced(node, map));
            case FILTERED ->
                Fragments.replaced(Leaves.underRuntimeFilters((FileSourceScanExec) node, made(part.child, map), part.tasks), map);
        };
    }

    /** Returns the columns that *scan* takes of cached rows. */
    private static SparkPlan cached(InMemoryTableScanExec scan, String name) {
        var rows = Nodes.placeholder(scan.session().sparkContext(), scan.relation().output(), name);
        return scan.output().equals(rows.output()) ? rows : Nodes.project(Seqs.<NamedExpression>seq(Seqs.list(scan.output())), rows);
    }

    private SparkPlan node(int place) {
        return outline.nodes.get(place);
    }
}
