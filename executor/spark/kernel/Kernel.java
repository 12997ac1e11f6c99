package onager.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectInputStream;
import java.io.ObjectStreamClass;
import java.nio.channels.Channels;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;

/**
 * What Python calls. Every method takes and gives few, plain values, because a call costs a tenth of a millisecond and
 * more: structures travel as JSON, results of many tasks in one answer.
 */
public final class Kernel {
    private static final ObjectMapper JSON = new ObjectMapper();

    final SparkContext sc;
    final Store store;
    final int slots;
    private final Tracker tracker;
    final Broadcasts broadcasts;
    final LinkedBlockingQueue events = new LinkedBlockingQueue();
    private final Map runs = new ConcurrentHashMap();
    final Pools pools = new Pools();
    private final ControlThreads controls = new ControlThreads();
    private volatile Streams streams = null;

    /** *writer*: the life of this executor. */
    public Kernel(SparkContext sc, String exchangeDir, int slots, String writer) {
        this.sc = sc;
        this.store = new Store(exchangeDir, new SerializableConfiguration(new Configuration(sc.hadoopConfiguration())), writer);
        this.slots = slots;
        this.tracker = new Tracker(sc);
        this.broadcasts = new Broadcasts(sc);
        sc.addSparkListener(tracker);
    }

    /** Let tasks here stream, and others read that: *spec* is that of `Streams`. Return the address where they do. */
    public String openStreams(String spec) throws IOException {
        streams = new Streams(store, JSON.readTree(spec));
        return streams.address;
    }

    Streams streams() {
        Streams open = streams;
        if (open == null) {
            throw new java.io.UncheckedIOException(new IOException("this executor takes no part in streams"));
        }
        return open;
    }

    /**
     * Know of tasks that will stream once their stage is bound, which may take as long as what is broadcast in it; *spec*: what `submit`
     * takes for streams.
     */
    public void expectStreams(String spec) throws IOException {
        streams().expect(JSON.readTree(spec));
    }

    /** Those of them that have not begun will not. */
    public void giveUpStreams(String spec, String why) throws IOException {
        streams().giveUp(JSON.readTree(spec), why);
    }

    /** Drop what a job has streamed, and take nothing more of it. */
    public void closeStreams(String job) {
        Streams open = streams;
        if (open != null) {
            open.closeJob(job);
        }
    }

    /** Stop to serve and to read streams. */
    public void stopStreams() {
        Streams open = streams;
        streams = null;
        if (open != null) {
            open.close();
        }
    }

    /** Return {bytes of streams in memory, bytes of them ever written to files, tasks that they are of, requests that wait}. */
    public long[] streamUse() {
        return streams().use();
    }

    /** Let this thread's Spark jobs run in the job group *group* and in a scheduling pool of their own, until `leaveControl`. */
    public void enterControl(String group, String description) {
        sc.setJobGroup(group, description, true);
        sc.setLocalProperty(Pools.PROPERTY, pools.take());
        controls.enter(group);
    }

    public void leaveControl(String group) {
        controls.leave(group);
        pools.give(sc.getLocalProperty(Pools.PROPERTY));
        sc.setLocalProperty(Pools.PROPERTY, null);
    }

    /** Stop the Spark jobs of *group*, let no more of them start, and interrupt its thread. */
    public void cancelControl(String group) {
        sc.cancelJobGroupAndFutureJobs(group, "cancelled");
        controls.interrupt(group);
    }

    static Seq seq(Object[] items) {
        return scala.jdk.javaapi.CollectionConverters.asScala(java.util.Arrays.asList(items)).toSeq();
    }

    static JsonNode item(JsonNode object, String list, int i) {
        return (JsonNode) object.get(list).get(i);
    }

    static Object decode(byte[] bytes) throws IOException, ClassNotFoundException {
        return new Decoder(new ByteArrayInputStream(bytes)).readObject();
    }

    private static final class Decoder extends ObjectInputStream {
        Decoder(InputStream in) throws IOException {
            super(in);
        }

        protected Class resolveClass(ObjectStreamClass c) throws IOException, ClassNotFoundException {
            try {
                return Class.forName(c.getName(), false, Thread.currentThread().getContextClassLoader());
            } catch (ClassNotFoundException e) {
                return super.resolveClass(c);
            }
        }
    }

    /**
     * Make a session of *base*'s context with the settings *conf*, a JSON object. What the process was given of Spark SQL's own, and
     * is not in it, goes back to Spark's default: it was not there where the stage was planned.
     */
    public SparkSession session(SparkSession base, String conf) throws IOException {
        SparkSession session = (SparkSession) base.newSession();
        JsonNode given = JSON.readTree(conf);
        scala.collection.Iterator all = session.sessionState().conf().getAllConfs().keysIterator();
        while (all.hasNext()) {
            String key = (String) all.next();
            if (key.startsWith("spark.sql.") && !given.has(key) && !SQLConf.isStaticConfigKey(key)) {
                session.sessionState().conf().unsetConf(key);
            }
        }
        Iterator fields = given.fields();
        while (fields.hasNext()) {
            Map.Entry e = (Map.Entry) fields.next();
            session.sessionState().conf().setConfString((String) e.getKey(), ((JsonNode) e.getValue()).asText());
        }
        return session;
    }

    /** Let this thread's Spark jobs run under *session*'s settings, in the job group *group* and the scheduling pool *pool*. */
    void enter(SparkSession session, String group, String pool) {
        java.util.Properties p = new java.util.Properties();
        scala.collection.Iterator all = session.sessionState().conf().getAllConfs().iterator();
        while (all.hasNext()) {
            scala.Tuple2 t = (scala.Tuple2) all.next();
            if (((String) t._1()).startsWith("spark.")) {
                p.setProperty((String) t._1(), (String) t._2());
            }
        }
        p.setProperty("spark.jobGroup.id", group);
        p.setProperty("spark.job.description", "onager " + group);
        p.setProperty("spark.job.interruptOnCancel", "true");
        p.setProperty(Tracker.RUN, group);
        p.setProperty(Pools.PROPERTY, pool);
        sc.setLocalProperties(p);
        org.apache.spark.sql.SparkSession.setActiveSession(session);
    }

    /** A stage's plan, executable, and the RDD of its N partitions. */
    public static final class Bound {
        final SparkSession session;
        final SparkPlan plan;
        final RDD rdd;
        final Seq output;
        final DataType[] types;
        /** What it reads of `Broadcasts`. */
        List broadcasts = java.util.Collections.emptyList();

        Bound(SparkSession session, SparkPlan plan, RDD rdd) {
            this.session = session;
            this.plan = plan;
            this.rdd = rdd;
            this.output = plan.output();
            this.types = new DataType[output.size()];
            for (int i = 0; i < types.length; i++) {
                types[i] = ((Attribute) output.apply(i)).dataType();
            }
        }

        public int partitions() {
            return rdd.getNumPartitions();
        }

        /** Return the plan as Spark prints it, as it was bound. */
        public String text() {
            return plan.treeString();
        }
    }

    /**
     * Decode a fragment, fill its placeholders, and execute it up to its RDD (its broadcasts and subqueries run now).
     *
     * <p>*spec* is JSON: {job, group, partitions, ordered, sparing, inputs: [null | {stage, directory, reads_all, partitions, producers: [..], nonces: [..],
     * rows: [..], bytes} | {stage, attempt, job, reads_all, partitions, attempts: [..], addresses: [..], alone}]}; *ordered*: the order of the
     * rows matters; *sparing*: broadcast only what has to be; *leaves* has a plan where inputs has null. An input with attempts is a
     * stream, and `RemoteInput` says what is in it. One with *ordering* (as from `PlanTools.ordering`, in base 64) has sorted runs, of which partitions are ranges.
     */
    public Bound bind(SparkSession session, byte[] fragment, String spec, List leaves) throws Exception {
        JsonNode s = JSON.readTree(spec);
        String group = s.get("group").asText();
        String pool = pools.take();
        try {
            enter(session, group, pool);
            return bind(session, fragment, s, leaves, s.get("sparing").asBoolean());
        } catch (Throwable e) {
            if (!Failures.isTooLargeToBroadcast(e) || hasStreams(s)) {
                throw e;
            }
            return bind(session, fragment, s, leaves, true);
        } finally {
            pools.give(pool);
            tracker.forget(group);
        }
    }

    private static boolean hasStreams(JsonNode s) {
        boolean found = false;
        for (int i = 0; i < s.get("inputs").size(); i++) {
            found = found || item(s, "inputs", i).has("attempts");
        }
        return found;
    }

    private Bound bind(SparkSession session, byte[] fragment, JsonNode s, List leaves, boolean sparing) throws Exception {
        String group = s.get("group").asText();
        try {
            Bound bound = bind(session, fragment, s, new StageInputs(this, s, leaves), sparing);
            bound.broadcasts = broadcasts.bound(group);
            return bound;
        } catch (Throwable e) {
            broadcasts.giveUp(group);
            throw e;
        }
    }

    private Bound bind(SparkSession session, byte[] fragment, JsonNode s, StageInputs inputs, boolean sparing) throws Exception {
        boolean free = !s.get("ordered").asBoolean();
        int partitions = s.get("partitions").asInt();
        SparkPlan decoded = (SparkPlan) decode(fragment);
        BroadcastLimit limit = new BroadcastLimit(inputs, decoded, partitions, free);
        SparkPlan held = limit.within(decoded, sparing ? 0L : broadcasts.left(limit.keys()));
        long mostHashed = ((Long) session.sessionState().conf().getConf(
                SQLConf$.MODULE$.ADAPTIVE_MAX_SHUFFLE_HASH_JOIN_LOCAL_MAP_THRESHOLD())).longValue();
        SparkPlan plan = new HashJoins(inputs, mostHashed).visit(held, free);
        Bound bound = bind(session, plan, partitions, inputs);
        Streams.decide(bound.rdd, inputs.streamed);
        inputs.release();
        return bound;
    }

    /** The same of a decoded fragment, with leaves from wherever; the session is the active one of this thread. */
    static Bound bind(SparkSession session, SparkPlan plan, int wanted, Binder.Leaves leaves) {
        SparkPlan bound = new Binder(leaves).bind(plan, session);
        RDD rdd = bound.execute();
        if (rdd.getNumPartitions() != wanted) {
            throw new ChangedInput("the stage was planned with " + wanted + " partitions, but here its plan has "
                    + rdd.getNumPartitions() + ": its files changed since, or its leaves do not agree\n" + bound.treeString());
        }
        return new Bound(session, bound, rdd);
    }

    /**
     * Begin to run partitions of a bound stage; returns at once. What becomes of each comes with `take`.
     *
     * <p>*spec* is JSON: {run, partitions: [..], nonces: [..], layout: exchange | stream | result | sink, directory, buckets, names: [..], format,
     * options: {..}, staging, job, stage, stage_attempt, task_attempts: [..]} (the last four for streams); *expression* is the serialised bucket
     * expression, or empty. With *samples* rows are sorted by *expression* (as from `PlanTools.ordering`), and so many keys go along with them.
     */
    public void submit(Bound bound, String spec, byte[] expression) throws Exception {
        JsonNode s = JSON.readTree(spec);
        String run = s.get("run").asText();
        Map nonces = new HashMap();
        Object[] partitions = new Object[s.get("partitions").size()];
        for (int i = 0; i < partitions.length; i++) {
            partitions[i] = Integer.valueOf(item(s, "partitions", i).asInt());
            nonces.put(partitions[i], item(s, "nonces", i).asText());
        }
        Run started = new Run(this, sc, run, bound, seq(partitions), task(bound, s, run, nonces, expression));
        runs.put(run, started);
        broadcasts.run(bound.broadcasts, 1);
        started.start();
    }

    /**
     * Run a whole query with plain Spark, on this thread and in its job group, and keep its result as one partition; what
     * goes wrong is raised as Spark raises it.
     *
     * <p>*spec* as for `submit`, without run, partitions and nonces, but with nonce. The answer is one event as from `take`.
     */
    public byte[] runWhole(SparkSession session, QueryExecution query, String spec) throws Exception {
        JsonNode s = JSON.readTree(spec);
        String nonce = s.get("nonce").asText();
        boolean isResult = s.get("layout").asText().equals("result");
        Bound bound = new Bound(session, query.executedPlan(), query.toRdd());
        Map nonces = new HashMap();
        Object[] partitions = new Object[bound.partitions()];
        for (int i = 0; i < partitions.length; i++) {
            partitions[i] = Integer.valueOf(i);
            nonces.put(partitions[i], isResult ? nonce + "p" : nonce);
        }
        Task task = task(bound, s, "whole/" + nonce, nonces, new byte[0]);
        task.isStrict = true;
        if (task instanceof WriteResult) {
            int least = ((WriteResult) task).empty().length + ResultFile.SMALLEST_END;
            ((WriteResult) task).inline = Math.max(least, Whole.inline(partitions.length, sc));
        }
        long started = System.currentTimeMillis();
        Outcome[] outcomes = new Outcome[partitions.length];
        Outcome whole;
        try {
            sc.runJob(bound.rdd, task, seq(partitions), new Whole.Collector(outcomes), ClassTag$.MODULE$.apply(Outcome.class));
            whole = isResult
                    ? Whole.result(outcomes, store, s.get("directory").asText(), nonce, ((WriteResult) task).empty())
                    : Whole.sink(outcomes);
        } catch (Throwable e) {
            for (int i = 0; i < outcomes.length; i++) {
                if (outcomes[i] != null) {
                    task.discard(outcomes[i]);
                }
            }
            throw e;
        }
        whole.fields.put("started_ms", Long.valueOf(started));
        whole.fields.put("ended_ms", Long.valueOf(System.currentTimeMillis()));
        return pack(java.util.Collections.singletonList(json("", whole)), whole.inline == null ? new byte[0] : whole.inline);
    }

    Task task(Bound bound, JsonNode s, String run, Map nonces, byte[] expression) throws Exception {
        String layout = s.get("layout").asText();
        if (layout.equals("exchange")) {
            int buckets = s.get("buckets").asInt();
            ExchangeOutput to = new RowFileOutput(store, s.get("directory").asText(), buckets, s.has("samples") ? 1 : buckets);
            to.prepare();
            return exchange(bound, to, s, run, nonces, expression);
        }
        if (layout.equals("stream")) {
            ExchangeOutput to = streams().output(s);
            to.prepare();
            return exchange(bound, to, s, run, nonces, expression);
        }
        StructType schema = ResultSchema.named(bound.output, s.get("names"));
        if (layout.equals("result")) {
            String zone = bound.session.sessionState().conf().sessionLocalTimeZone();
            return new WriteResult(run, nonces, bound.types, store, s.get("directory").asText(), ResultSchema.shown(schema), zone, ResultSchema.projection(schema, zone));
        }
        scala.collection.immutable.Map options = options(s.get("options"));
        Configuration conf = bound.session.sessionState().newHadoopConfWithOptions(options);
        conf.set("fs.file.impl", "onager.kernel.LocalFiles");
        conf.setBoolean("fs.file.impl.disable.cache", true);
        Job job = Job.getInstance(conf);
        org.apache.spark.sql.SparkSession.setActiveSession(bound.session);
        OutputWriterFactory factory = Spark43.prepareWrite(Spark43.format(s.get("format").asText()), bound.session, job, options, schema);
        return new WriteSink(run, nonces, bound.types, factory, schema, new SerializableConfiguration(job.getConfiguration()),
                s.get("staging").asText());
    }

    /** Make what puts a stage's rows into an exchange; *s* and *expression* as for `submit`. */
    static Task exchange(Bound bound, ExchangeOutput to, JsonNode s, String run, Map nonces, byte[] expression) throws Exception {
        if (s.has("samples")) {
            return new WriteSorted(run, nonces, bound.types, to, KeyOrder.decoded(expression, bound.output), s.get("samples").asInt());
        }
        Expression e = expression.length == 0 ? null : (Expression) decode(expression);
        return new WriteExchange(run, nonces, bound.types, to, e, bound.output);
    }

    private static scala.collection.immutable.Map options(JsonNode given) {
        Map map = new HashMap();
        Iterator fields = given.fields();
        while (fields.hasNext()) {
            Map.Entry e = (Map.Entry) fields.next();
            map.put(e.getKey(), ((JsonNode) e.getValue()).asText());
        }
        scala.collection.immutable.Map plain = scala.collection.immutable.Map$.MODULE$.from(
                scala.jdk.javaapi.CollectionConverters.asScala(map));
        return org.apache.spark.sql.catalyst.util.CaseInsensitiveMap$.MODULE$.apply(plain);
    }

    /** The Arrow IPC schema message of a result with *plan*'s output under *names*, a JSON list. */
    public static byte[] arrowSchema(SparkSession session, SparkPlan plan, String names) throws IOException {
        StructType schema = ResultSchema.shown(ResultSchema.named(plan.output(), JSON.readTree(names)));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)),
                WriteResult.arrow(schema, session.sessionState().conf().sessionLocalTimeZone()));
        return out.toByteArray();
    }

    /** Leave the context as it was before this kernel came. */
    public void close() {
        stopStreams();
        sc.removeSparkListener(tracker);
    }

    /** Stop partitions of a run; those not named go on. */
    public void cancel(String run, List partitions) {
        Run r = (Run) runs.get(run);
        if (r != null) {
            r.cancel(partitions, tracker);
        }
    }

    /** Raise what this Spark lacks of what is found by its name. */
    public void check(SparkSession session) {
        Binder.rules(session);
        PlanTools.check();
    }

    /** Return what processes of the cluster that run *tasks* tasks have against the exchange directory; nothing when all share it. */
    public List whoDoesNotShare(int tasks) throws Exception {
        return Probe.ask(sc, store, tasks);
    }

    /** Remove a job's files from an exchange directory behind a URI, but for *keep*. */
    public void removeJob(String job, List keep) throws IOException {
        store.removeAll(job, keep);
    }

    /** Stop whatever runs in a job group, or would begin later, such as the broadcasts of a stage that is being bound. */
    public void cancelGroup(String group) {
        Streams open = streams;
        if (open != null) {
            open.cancelGroup(group);
        }
        sc.cancelJobGroupAndFutureJobs(group);
        broadcasts.cancel(group);
    }

    /** Give back what was broadcast for a job. */
    public void closeJob(String job) {
        broadcasts.closeJob(job);
    }

    /** Return {broadcasts that are held, those ever begun, bytes of memory that Spark holds for them}. */
    public long[] broadcastUse() {
        long[] counts = broadcasts.use();
        return new long[] {counts[0], counts[1], org.apache.spark.SparkEnv$.MODULE$.get().memoryManager().storageMemoryUsed()};
    }

    /** Let stages of this executor broadcast at most *bytes* at a time, about. */
    public void limitBroadcasts(long bytes) {
        broadcasts.limit(bytes);
    }

    void ended(String run, Throwable failure) {
        Run over = (Run) runs.remove(run);
        if (over != null) {
            broadcasts.run(over.bound.broadcasts, -1);
        }
        tracker.forget(run);
        Map fields = new LinkedHashMap();
        if (failure != null) {
            fields.put("failure", Failures.describe(failure, false));
        }
        events.add(new Object[] {run, new Outcome(-1, fields, null)});
    }

    /** Describe an exception that reached Python, as JSON. */
    public String describe(Throwable e) throws IOException {
        return JSON.writeValueAsString(Failures.describe(e, false));
    }

    /**
     * Wait up to *timeoutMs* for news, then return all there is (at most about 8 MiB): int32 length of a JSON list of events, the list,
     * and the inline results one after another. An event of partition -1 says that its run has ended.
     */
    public byte[] take(long timeoutMs) throws IOException, InterruptedException {
        List taken = new ArrayList();
        ByteArrayOutputStream blobs = new ByteArrayOutputStream();
        Object[] event = (Object[]) events.poll(timeoutMs, TimeUnit.MILLISECONDS);
        while (event != null) {
            Outcome outcome = (Outcome) event[1];
            if (outcome.inline != null) {
                blobs.write(outcome.inline, 0, outcome.inline.length);
            }
            taken.add(json((String) event[0], outcome));
            event = blobs.size() > 8 << 20 ? null : (Object[]) events.poll();
        }
        return pack(taken, blobs.toByteArray());
    }

    private static Map json(String run, Outcome outcome) {
        Map json = new LinkedHashMap(outcome.fields);
        json.put("run", run);
        json.put("partition", Integer.valueOf(outcome.partition));
        if (outcome.inline != null) {
            json.put("inline_bytes", Integer.valueOf(outcome.inline.length));
        }
        return json;
    }

    private static byte[] pack(List events, byte[] blobs) throws IOException {
        byte[] text = JSON.writeValueAsBytes(events);
        java.nio.ByteBuffer out = java.nio.ByteBuffer.allocate(4 + text.length + blobs.length);
        return out.putInt(text.length).put(text).put(blobs).array();
    }
}
