package onager.spark43;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import onager.failure.Advice;
import onager.failure.RefusedException;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.SparkThrowable;
import org.apache.spark.connect.proto.AnalyzePlanRequest;
import org.apache.spark.connect.proto.Command;
import org.apache.spark.connect.proto.ExecutePlanRequest;
import org.apache.spark.connect.proto.ExecutePlanResponse;
import org.apache.spark.connect.proto.FetchErrorDetailsResponse;
import org.apache.spark.connect.proto.ReattachOptions;
import org.apache.spark.connect.proto.Relation;
import org.apache.spark.connect.proto.SqlCommand;
import org.apache.spark.connect.proto.UserContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.plans.logical.CacheTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan$;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connect.common.DataTypeProtoConverter$;
import org.apache.spark.sql.connect.common.StorageLevelProtoConverter$;
import org.apache.spark.sql.connect.config.Connect$;
import org.apache.spark.sql.connect.planner.SparkConnectPlanner;
import org.apache.spark.sql.connect.service.ExecuteHolder;
import org.apache.spark.sql.connect.service.ExecuteKey;
import org.apache.spark.sql.connect.service.SessionHolder;
import org.apache.spark.sql.connect.service.SparkConnectAnalyzeHandler;
import org.apache.spark.sql.connect.service.SparkConnectService$;
import org.apache.spark.sql.connect.utils.ErrorUtils$;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.util.ThreadUtils;
import org.sparkproject.connect.protobuf.ByteString;
import org.sparkproject.connect.protobuf.CodedInputStream;
import org.sparkproject.connect.protobuf.InvalidProtocolBufferException;
import org.sparkproject.connect.protobuf.Message;
import scala.Option;

/** What Spark's own Connect server does with a session, without the server: it analyses plans, and carries commands out. */
public final class ConnectSession implements AutoCloseable {
    /** How deep a plan may be nested. Source: the default of spark.connect.grpc.marshallerRecursionLimit. */
    private static final int DEEPEST = 1024;

    private static final String UNREADABLE = "the plan cannot be read, since it is damaged or nested more than 1,024 deep (%s): split it up with temporary views";
    /** Source: what Spark shows of a setting that it redacts. */
    private static final String REDACTED = "*********(redacted)";
    private static final long LOOK_NANOS = 500_000;
    private static final SparkConnectService$ SERVICE = SparkConnectService$.MODULE$;

    private static final ExecutorService CLEANER = ThreadUtils.newDaemonSingleThreadExecutor("onager cleans up sessions");

    private final Map<String, Dataset<Row>> kept = new HashMap<>();
    private final Map<Relation, LogicalPlan> analyzed = new HashMap<>();
    private final Consumer<Message> check;
    private SessionHolder holder;
    private boolean isRegistered = false;
    private boolean hasArtifacts = false;

    /** Make one of *session*, which is nobody else's, for *user*; *check* throws for messages that are refused. */
    public ConnectSession(SparkSession session, String user, Consumer<Message> check) {
        this.check = check;
        this.holder = new SessionHolder(user, UUID.randomUUID().toString(), session);
    }

    /** Make the session known to Spark's server, where commands look for it: to end it then starts a process (rm). */
    private void register() {
        if (!isRegistered) {
            holder = SERVICE.sessionManager().registerExistingSession(holder.userId(), holder.sessionId(), holder.session());
            isRegistered = true;
            kept.forEach(holder::cacheDataFrameById);
            analyzed.forEach(this::note);
        }
    }

    /** Return what Spark answers to an encoded AnalyzePlanRequest, encoded. */
    public byte[] analyze(byte[] request) throws Exception {
        AnalyzePlanRequest asked = checked(request, AnalyzePlanRequest::parseFrom);
        return within("", () -> new SparkConnectAnalyzeHandler(null).process(own(asked), holder).toByteArray());
    }

    /** Return the plan of an encoded Relation, as it is before its analysis: nothing of it has run, not even a command. */
    public LogicalPlan plan(byte[] relation) throws Exception {
        SparkConnectPlanner planner = new SparkConnectPlanner(holder, Option.empty());
        Relation asked = checked(relation, Relation::parseFrom);
        return within(asked.getSql().getQuery(), () -> planner.transformRelation(asked)); // a text by itself is parsed, and not carried out
    }

    /** Return the plan of an encoded Command that writes, as Spark's writers make it: not analyzed, and only its query is planned. */
    public LogicalPlan writing(byte[] command) throws Exception {
        SparkConnectPlanner planner = new SparkConnectPlanner(holder, Option.empty());
        Command asked = checked(command, Command::parseFrom);
        return within("", () -> planner.transformCommand(asked).get().apply(new QueryPlanningTracker(Option.empty())));
    }

    private <T> T within(String statement, Callable<T> work) throws Exception {
        return QueriesOnly.within(holder.session(), statement, work);
    }

    /** Return the text of the statement *command*. */
    @SuppressWarnings("deprecation") // older clients put it into the command
    private static String text(SqlCommand command) {
        Relation input = command.getInput();
        return command.hasInput() ? (input.hasWithRelations() ? input.getWithRelations().getRoot() : input).getSql().getQuery() : command.getSql();
    }

    private <T extends Message> T checked(byte[] content, Parser<T> parser) throws IOException {
        T message = parsed(content, parser);
        check.accept(message);
        return message;
    }

    /** Return the level of an encoded StorageLevel. */
    public static StorageLevel level(byte[] level) throws IOException {
        return StorageLevelProtoConverter$.MODULE$.toStorageLevel(parsed(level, org.apache.spark.connect.proto.StorageLevel::parseFrom));
    }

    /** Return the level that a parsed CACHE TABLE names, encoded; nothing if it names none. */
    public static byte[] level(CacheTable parsed) {
        for (var option : Seqs.each(parsed.options().iterator())) {
            if (option._1().equalsIgnoreCase("storageLevel")) {
                StorageLevel level = StorageLevel.fromString(option._2().toUpperCase(Locale.ROOT));
                return StorageLevelProtoConverter$.MODULE$.toConnectProtoType(level).toByteArray();
            }
        }
        return new byte[0];
    }

    /** Return the dataset of a plan; it has not run, but for commands in it. */
    public Dataset<Row> dataset(LogicalPlan plan) {
        return Dataset.ofRows(holder.session(), plan);
    }

    /** Return the dataset of an encoded Relation. Where the same DataFrame is in what comes next, it is not analyzed again, nor are seeds drawn. */
    public Dataset<Row> cached(byte[] relation) throws Exception {
        Relation asked = checked(relation, Relation::parseFrom);
        Dataset<Row> made = dataset(plan(relation));
        if (asked.getCommon().hasPlanId()) {
            LogicalPlan plan = made.queryExecution().analyzed();
            plan.setTagValue(LogicalPlan$.MODULE$.PLAN_ID_TAG(), asked.getCommon().getPlanId());
            analyzed.put(asked, plan);
            note(asked, plan);
        }
        return made;
    }

    /** Have Spark find the plan of a relation, as its own server does for the relations that clients asked about last. */
    private void note(Relation relation, LogicalPlan plan) {
        if (holder.getPlanCache().isDefined()) {
            holder.getPlanCache().get().put(relation, plan);
        }
    }

    /** Have the relation *id* stand for *plan* in what comes next. */
    public void keep(String id, LogicalPlan plan) {
        kept.put(id, dataset(plan));
        holder.cacheDataFrameById(id, kept.get(id));
    }

    /** Carry out an encoded ExecutePlanRequest, and return its encoded responses, without the one that says that all have come. */
    public List<byte[]> execute(byte[] request) throws Exception {
        register();
        ExecutePlanRequest asked = checked(request, ExecutePlanRequest::parseFrom);
        ExecutePlanRequest own = ExecutePlanRequest.newBuilder().setPlan(asked.getPlan()).setSessionId(holder.sessionId())
                .setUserContext(UserContext.newBuilder().setUserId(holder.userId())).setOperationId(UUID.randomUUID().toString())
                .addRequestOptions(ExecutePlanRequest.RequestOption.newBuilder().setReattachOptions(ReattachOptions.newBuilder().setReattachable(true)))
                .build();
        var executions = SERVICE.executionManager();
        ExecuteKey key = new ExecuteKey(holder.userId(), holder.sessionId(), own.getOperationId());
        ExecuteHolder execution = executions.createExecuteHolder(key, own, holder);
        holder.errorIdToError().invalidateAll();
        try {
            return within(text(asked.getPlan().getCommand().getSqlCommand()), () -> {
                execution.start();
                execution.afterInitialRPC();
                return responses(execution);
            });
        } finally {
            executions.removeExecuteHolder(key, false);
        }
    }

    private List<byte[]> responses(ExecuteHolder execution) throws Exception {
        var observer = execution.responseObserver();
        List<byte[]> found = new ArrayList<>();
        for (long next = 1; ; ) {
            var last = observer.getLastResponseIndex();
            if (observer.getError().isDefined()) {
                throw thrown(cause(observer.getError().get()));
            }
            if (last.isDefined() && next > (long) last.get()) {
                return found;
            }
            var response = observer.consumeResponse(next);
            if (response.isDefined()) {
                ExecutePlanResponse sent = response.get().response();
                next++;
                if (!sent.hasResultComplete() && !sent.hasExecutionProgress()) {
                    found.add(sent.toBuilder().clearSessionId().clearServerSideSessionId().clearOperationId().clearResponseId().build().toByteArray());
                }
                continue;
            }
            LockSupport.parkNanos(LOOK_NANOS);
            if (Thread.interrupted()) {
                throw givenUp(execution);
            }
        }
    }

    /** Stop *execution*, whose thread goes on for as long as it does not look, and return what to throw once it has ended. */
    private static InterruptedException givenUp(ExecuteHolder execution) {
        execution.interrupt();
        while (execution.isExecuteThreadRunnerAlive()) {
            LockSupport.parkNanos(LOOK_NANOS);
            Thread.interrupted(); // or the thread does not park
        }
        return new InterruptedException("the command was given up");
    }

    private static Exception thrown(Throwable cause) {
        if (cause instanceof Error error) {
            throw error;
        }
        return (Exception) cause;
    }

    /** Return the error of which *sent* goes over gRPC: Spark keeps the error itself for those who ask for its details. */
    private Throwable cause(Throwable sent) {
        return holder.errorIdToError().asMap().values().stream().findFirst().orElse(sent);
    }

    /** Return the columns of an encoded DataType, a struct, as CREATE TABLE has them. */
    public static String ddl(byte[] schema) throws IOException {
        DataType type = DataTypeProtoConverter$.MODULE$.toCatalystType(parsed(schema, org.apache.spark.connect.proto.DataType::parseFrom));
        return type instanceof StructType columns ? columns.toDDL() : "";
    }

    /** Take a file into the session under the name that the client gave it. */
    public void addArtifact(String name, String file) throws IOException {
        Path copy = Files.createTempFile("onager-artifact", ""); // Spark moves it
        Files.copy(Path.of(file), copy, StandardCopyOption.REPLACE_EXISTING);
        hasArtifacts = true;
        holder.addArtifact(Path.of(name), copy, Option.empty());
    }

    /** Throw Spark's error for a column of a result of a type that is switched off. */
    public void checkResult(Dataset<Row> result) {
        TypeUtils$.MODULE$.failUnsupportedDataType(result.schema(), holder.session().sessionState().conf());
    }

    /** Make *database* the current one, which may have been dropped since. */
    public void use(String database) {
        holder.session().sessionState().catalog().setCurrentDatabaseWithNameCheck(database, name -> null);
    }

    /** Has Spark clean up, which nobody waits for. */
    @Override
    public void close() {
        if (isRegistered) {
            CLEANER.submit(() -> SERVICE.sessionManager().closeSession(holder.key(), false));
        } else if (hasArtifacts) {
            CLEANER.submit(() -> holder.artifactManager().close());
        }
    }

    /** Return what Spark's server would tell of *error*: its class, its state, its message, and an encoded FetchErrorDetailsResponse of at most *most* bytes. */
    public static List<Object> describe(Throwable error, int most) {
        String kind = error instanceof SparkThrowable known && known.getCondition() != null ? known.getCondition() : "";
        String state = error instanceof SparkThrowable known && known.getSqlState() != null ? known.getSqlState() : "";
        String message = Advice.with(error.getMessage() == null ? error.toString() : error.getMessage(), error);
        byte[] details = details(error, message, true);
        details = details.length > most ? details(error, message, false) : details;
        return List.of(kind, state, message, details.length > most ? new byte[0] : details);
    }

    private static byte[] details(Throwable error, String message, boolean hasTraces) {
        FetchErrorDetailsResponse.Builder answer = ErrorUtils$.MODULE$.throwableToFetchErrorDetailsResponse(error, hasTraces).toBuilder();
        if (error.getMessage() != null && answer.getErrorsCount() > 0) {
            answer.getErrorsBuilder(answer.getRootErrorIdx()).setMessage(message);
        }
        return answer.build().toByteArray();
    }

    /** A setting that sessions have; without a value it is undefined. */
    public record Setting(String key, String value, boolean isFixed, boolean isSet) {}

    /** Return the settings that sessions have, as a JSON array of {@link Setting}. */
    public static String settings(SparkSession session) {
        Connect$.MODULE$.CONNECT_SESSION_PLAN_COMPRESSION_THRESHOLD(); // once its class is known, its settings are
        var conf = session.sessionState().conf();
        List<Setting> found = new ArrayList<>();
        for (var entry : SQLConf$.MODULE$.getConfigEntries()) {
            String value = session.conf().getOption(entry.key()).getOrElse(() -> null);
            found.add(new Setting(entry.key(), value, !session.conf().isModifiable(entry.key()), conf.contains(entry.key())));
        }
        for (var pair : Seqs.each(conf.getAllConfs().iterator())) {
            String value = Variables.isSecret(pair._1()) ? REDACTED : pair._2();
            found.add(new Setting(pair._1(), value, !session.conf().isModifiable(pair._1()), true));
        }
        return Json.text(found);
    }

    /** Return the names of the session's temporary views. */
    public List<String> temporaryViews() {
        return Seqs.list(holder.session().sessionState().catalog().listTempViews("default", "*").toSeq()).stream()
                .map(view -> view.identifier().table()).toList();
    }

    private AnalyzePlanRequest own(AnalyzePlanRequest asked) {
        return asked.toBuilder().setSessionId(holder.sessionId()).setUserContext(UserContext.newBuilder().setUserId(holder.userId()))
                .clearClientObservedServerSideSessionId().build();
    }

    /** Parses a message of Spark's protocol. */
    public interface Parser<T> {
        T parse(CodedInputStream content) throws IOException;
    }

    /** Return the message of *content*; `RefusedException` if it is damaged or nested too deep. */
    public static <T> T parsed(byte[] content, Parser<T> parser) throws IOException {
        CodedInputStream stream = ByteString.copyFrom(content).newCodedInput();
        stream.setRecursionLimit(DEEPEST);
        try {
            return parser.parse(stream);
        } catch (InvalidProtocolBufferException e) {
            throw new RefusedException(String.format(UNREADABLE, e.getMessage()));
        }
    }
}
