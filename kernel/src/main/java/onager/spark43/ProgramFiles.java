package onager.spark43;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.Callable;
import onager.values.Seqs;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.JobArtifactState;
import org.apache.spark.sql.artifact.ArtifactManager;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SessionState;
import scala.Function0;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * The files of a program, for the Python of its sessions. They are called by a digest, which Spark takes for the id of a job's artifacts:
 * Python workers of one id serve no other, so that a module that was imported is seen only by those who have that one.
 */
public final class ProgramFiles {
    /** The setting of a planned stage that says which files its Python has. */
    public static final String KEY = "spark.onager.programFiles";

    private static final String THREADS = "currentClientSessionState";
    private static final Map<SparkSession, JobArtifactState> GIVEN = Collections.synchronizedMap(new WeakHashMap<>());

    private ProgramFiles() {}

    /** Spark's own manager of a session's artifacts, but for what its Python has. */
    private static final class Manager extends ArtifactManager {
        private final JobArtifactState state;
        private final List<String> includes;

        Manager(SparkSession session, JobArtifactState state, List<String> includes) {
            super(session);
            this.state = state;
            this.includes = includes;
        }

        @Override
        public JobArtifactState state() {
            return state; // null for Spark's constructor: then nothing is cleaned up by the id, which sessions share
        }

        @Override
        public Seq<String> getPythonIncludes() {
            return Seqs.seq(includes);
        }

        @Override
        public ArtifactManager clone(SparkSession session) {
            GIVEN.put(session, state);
            return new Manager(session, state, includes);
        }
    }

    /** Throw an IllegalStateException unless Spark keeps a session's artifacts where they are looked for. */
    static void check() {
        Fields.of(SessionState.class, "artifactManager");
        Fields.of(SessionState.class, "artifactManagerBuilder");
        threads();
    }

    /**
     * Give *session* the files *digest*, and have the functions that are made in it look for modules in *includes*. What `within` runs then
     * has them.
     */
    public static void give(SparkSession session, String digest, List<String> includes) throws IllegalAccessException {
        var state = new JobArtifactState(digest, Option.empty());
        var manager = new Manager(session, state, List.copyOf(includes));
        Function0<ArtifactManager> builder = () -> manager;
        var spark = session.sessionState();
        Fields.of(SessionState.class, "artifactManagerBuilder").set(spark, builder); // if it is asked for from now on
        Fields.of(SessionState.class, "artifactManager").set(spark, manager); // if it was asked for before
        GIVEN.put(session, state);
    }

    /** Return the digest of the files that *session* has; empty if it has none. */
    public static String of(SparkSession session) {
        var state = GIVEN.get(session);
        return state == null ? "" : state.uuid();
    }

    /** Let this thread plan and run with the files of *session* from now on, until `leave`. */
    public static void enter(SparkSession session) {
        threads().set(Option.apply(GIVEN.get(session)));
    }

    public static void leave() {
        threads().set(Option.empty());
    }

    /** Do *work* on this thread with the files of *session*. */
    public static <T> T within(SparkSession session, Callable<T> work) throws Exception {
        Option<JobArtifactState> before = threads().get();
        enter(session);
        try {
            return work.call();
        } finally {
            threads().set(before);
        }
    }

    @SuppressWarnings("unchecked")
    private static ThreadLocal<Option<JobArtifactState>> threads() {
        try {
            return (ThreadLocal<Option<JobArtifactState>>) Fields.of(JobArtifactSet$.class, THREADS).get(null);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }
}
