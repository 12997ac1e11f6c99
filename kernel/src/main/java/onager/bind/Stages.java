package onager.bind;

import java.util.List;
import java.util.function.Supplier;
import onager.failure.Failures;
import onager.jobs.JobGroups;
import onager.spark43.Lookups;
import onager.spark43.ProgramFiles;
import onager.store.Store;
import onager.stream.Streams;
import onager.values.Json;
import onager.values.Serialization;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec$;

/** Binds the stages whose tasks this executor runs. */
public final class Stages {
    private final StageInputs.Means means;
    private final JobGroups groups;

    /** *streams* throws if this executor does not use streams. */
    public Stages(SparkContext sc, Store store, int slots, Broadcasts broadcasts, JobGroups groups, Supplier<Streams> streams) {
        this.means = new StageInputs.Means(sc, store, slots, broadcasts, streams);
        this.groups = groups;
    }

    /**
     * Decode a fragment, fill its placeholders, and execute it up to its RDD (its broadcasts and subqueries run now).
     *
     * <p>*spec* is the JSON of a `StageSpec`; *leaves* has a plan for each input that is null. If a stage's broadcasts are too large, it is
     * bound again with as few broadcasts as possible and no hash joins, unless it reads streams. *fused*: the fragments of the fused stages.
     */
    public Bound bind(SparkSession session, byte[] fragment, String spec, List<SparkPlan> leaves, List<byte[]> fused) throws Exception {
        StageSpec stage = Json.read(spec, StageSpec.class);
        return groups.within(session, stage.group(), () -> ProgramFiles.within(session, () -> {
            try {
                return bind(session, fragment, stage, leaves, fused, stage.sparing());
            } catch (Throwable e) {
                if (!Failures.isTooLargeToBroadcast(e) || stage.hasStreams()) {
                    throw e;
                }
                return bind(session, fragment, stage, leaves, fused, true);
            }
        }));
    }

    /** Return how long this JVM has generated and compiled code since it started: Spark tells no less. */
    private static long codegenNs() {
        return CodeGenerator$.MODULE$.compileTime() + WholeStageCodegenExec$.MODULE$.codeGenTime();
    }

    private Bound bind(SparkSession session, byte[] fragment, StageSpec stage, List<SparkPlan> leaves, List<byte[]> fused, boolean sparing)
            throws Exception {
        Broadcasts broadcasts = means.broadcasts();
        long codegenNs = codegenNs();
        try {
            var inputs = new StageInputs(means, stage, leaves);
            SparkPlan own = Serialization.decode(fragment);
            SparkPlan decoded = stage.isFused() ? new Fusion(means.sc(), stage, fused).composed(own) : own;
            var limit = new BroadcastLimit(inputs, decoded, stage.partitions(), !stage.ordered());
            SparkPlan held = limit.within(decoded, sparing ? 0L : broadcasts.left(limit.keys()));
            long hashed = sparing ? 0L : Lookups.mostHashed(session);
            SparkPlan plan = new HashJoins(inputs, hashed).visit(held, !stage.ordered());
            Bound bound = Binder.bind(session, plan, stage.partitions(), stage.isFused(), inputs);
            inputs.decide(bound.rdd());
            inputs.release();
            var operators = BoundPlan.of(bound.plan(), stage.metrics());
            long codegenMs = (codegenNs() - codegenNs) / 1_000_000L;
            return new Bound(session, bound.plan(), bound.rdd(), broadcasts.bound(stage.group()), operators, codegenMs);
        } catch (Throwable e) {
            broadcasts.giveUp(stage.group());
            throw e;
        }
    }
}
