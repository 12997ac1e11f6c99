package onager.spark43;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.stream.IntStream;
import onager.failure.RefusedException;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.SqlScriptingContextManager$;
import org.apache.spark.sql.catalyst.analysis.ResolveExecuteImmediate$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedExecuteImmediate;
import org.apache.spark.sql.catalyst.catalog.SqlScriptingContextManager;
import org.apache.spark.sql.catalyst.catalog.VariableDefinition;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.CursorDefinition;
import org.apache.spark.sql.catalyst.expressions.CursorReference;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.parser.HybridParameterContext;
import org.apache.spark.sql.catalyst.parser.ParameterHandler;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.CloseCursor;
import org.apache.spark.sql.catalyst.plans.logical.CompoundBody;
import org.apache.spark.sql.catalyst.plans.logical.CreateVariable;
import org.apache.spark.sql.catalyst.plans.logical.DeclareCursor;
import org.apache.spark.sql.catalyst.plans.logical.FetchCursor;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.OpenCursor;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SetVariable;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.errors.QueryCompilationErrors$;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.command.v2.ParameterBindingUtils$;
import org.apache.spark.sql.scripting.CursorClosed$;
import org.apache.spark.sql.scripting.CursorDeclared$;
import org.apache.spark.sql.scripting.CursorOpened;
import org.apache.spark.sql.scripting.CursorState;
import org.apache.spark.sql.scripting.SqlScriptingContextManagerImpl;
import org.apache.spark.sql.scripting.SqlScriptingExecutionContext;
import org.apache.spark.sql.scripting.SqlScriptingExecutionFrame;
import org.apache.spark.sql.scripting.SqlScriptingExecutionScope;
import org.apache.spark.sql.scripting.SqlScriptingFrameType$;
import org.apache.spark.sql.scripting.TriggerToExceptionHandlerMap;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Where a script of SQL is: its frames (the script, and the handlers that run), their blocks, and what was declared in them. It travels with
 * each statement, by value, and Spark's own rules find variables and cursors in it.
 */
public final class ScriptScope {
    private static final String DECLARED = "declared";
    private static final String OPEN = "open";
    private static final String CLOSED = "closed";
    /** The scopes of sessions: their statements are analyzed in several threads. */
    private static final Map<org.apache.spark.sql.SparkSession, SqlScriptingContextManager> SCOPES =
            Collections.synchronizedMap(new WeakHashMap<>());

    private ScriptScope() {}

    /** A variable. *type*: a struct of it, as JSON; *rows*: a stream of Arrow with one row of that; *defaultSql*: what DEFAULT stands for. */
    public record Variable(int frame, int block, String name, String type, byte[] rows, String defaultSql) {}

    /** A cursor. *type*, *rows*: its columns, and the row that it gives next, if it is known. */
    public record Cursor(int frame, int block, String name, String shown, String query, String state, String type, byte[] rows) {}

    /** A block that has been entered. */
    public record Block(String label, Variable[] variables, Cursor[] cursors) {}

    /** The script (*kind* {@code script}), or a handler of the block *label* ({@code exit}, {@code continue}); outer blocks first. */
    public record Frame(String kind, String label, Block[] blocks) {}

    /** What a statement has declared or set. */
    public record Changes(List<Variable> variables, List<Cursor> cursors) {}

    /** The query of a cursor that is opened. */
    public record Opened(int frame, int block, String name, String query) {}

    /** The statement that EXECUTE IMMEDIATE stands for: its text, what it is, and the variables that get its row. */
    public record Immediate(String text, String what, List<String> into) {}

    /** Throw an IllegalStateException if this Spark resolves EXECUTE IMMEDIATE in another way. */
    static void check() {
        text();
    }

    /** Have *session* be in *frames*, a JSON array of {@link Frame}, in this thread and in those that parse for it, until `leave`. */
    public static void enter(SparkSession session, String frames) {
        var context = new SqlScriptingExecutionContext();
        for (Frame frame : Json.read(frames, Frame[].class)) {
            context.frames().append(frame(frame));
        }
        if (context.frames().isEmpty()) {
            throw new RefusedException("a statement of a script has no frame that it is in");
        }
        var manager = new SqlScriptingContextManagerImpl(context);
        SCOPES.put(session, manager);
        set(Option.apply(manager));
    }

    public static void leave(SparkSession session) {
        SCOPES.remove(session);
        set(Option.empty());
    }

    /** Have this thread, which parses for *session*, be in its scope, too, if it has one: nobody else uses a thread of Spark's server. */
    static void follow(org.apache.spark.sql.SparkSession session) {
        var manager = SCOPES.get(session);
        if (manager != null && SqlScriptingContextManager$.MODULE$.get().isEmpty()) {
            set(Option.apply(manager));
        }
    }

    private static void set(Option<SqlScriptingContextManager> manager) {
        SqlScriptingContextManager$.MODULE$.org$apache$spark$util$LexicalThreadLocal$$set(manager);
    }

    private static SqlScriptingExecutionFrame frame(Frame frame) {
        var types = SqlScriptingFrameType$.MODULE$;
        var type = frame.kind.equals("script") ? types.SQL_SCRIPT() : frame.kind.equals("exit") ? types.EXIT_HANDLER() : types.CONTINUE_HANDLER();
        var made = new SqlScriptingExecutionFrame(null, type, Option.apply(frame.label.isEmpty() ? null : frame.label));
        for (Block block : frame.blocks) {
            var scope = new SqlScriptingExecutionScope(block.label, TriggerToExceptionHandlerMap.createEmptyMap());
            for (Variable each : block.variables) {
                scope.variables().put(each.name, definition(block.label, each));
            }
            for (Cursor each : block.cursors) {
                scope.cursors().put(each.name, new CursorDefinition(each.shown, each.query));
                scope.cursorStates().put(each.name, state(each));
            }
            made.scopes().append(scope);
        }
        return made;
    }

    private static VariableDefinition definition(String label, Variable variable) {
        StructType type = (StructType) DataType.fromJson(variable.type);
        DataType of = type.apply(0).dataType();
        List<InternalRow> rows = rows(type, variable.rows);
        Object value = rows.isEmpty() || rows.get(0).isNullAt(0) ? null : rows.get(0).get(0, of);
        return new VariableDefinition(Identifier.of(new String[] {label}, variable.name), variable.defaultSql, new Literal(value, of));
    }

    private static CursorState state(Cursor cursor) {
        if (cursor.state.equals(OPEN)) {
            StructType type = (StructType) DataType.fromJson(cursor.type);
            Seq<Attribute> columns = Seqs.seq(Seqs.list(DataTypeUtils$.MODULE$.toAttributes(type)));
            return new CursorOpened(Seqs.seq(rows(type, cursor.rows)).iterator(), columns);
        }
        return cursor.state.equals(CLOSED) ? CursorClosed$.MODULE$ : CursorDeclared$.MODULE$;
    }

    /** Return the rows in *stream*, one of Arrow's, as those of *type*: Arrow lacks some types, whose values are texts in it. */
    private static List<InternalRow> rows(StructType type, byte[] stream) {
        List<InternalRow> found = new ArrayList<>();
        if (stream.length > 0) {
            var read = ArrowConverters$.MODULE$.fromIPCStream(stream);
            StructType given = read._2();
            if (given.size() != type.size()) {
                throw new RefusedException("a value of a script has other columns than its type");
            }
            UnsafeProjection copy = UnsafeProjection.create(Seqs.<Expression>seq(
                    IntStream.range(0, type.size()).mapToObj(at -> column(at, given.apply(at).dataType(), type.apply(at).dataType())).toList()));
            var rows = read._1(); // closes itself at its end
            while (rows.hasNext()) {
                found.add(copy.apply(rows.next()).copy());
            }
        }
        return found;
    }

    private static Expression column(int at, DataType given, DataType type) {
        var column = new BoundReference(at, given, true);
        return given.equals(type) ? column : new Cast(column, type, Option.apply("UTC"), EvalMode$.MODULE$.ANSI());
    }

    private static byte[] stream(StructType type, Object value) {
        var rows = Seqs.<InternalRow>seq(InternalRow.fromSeq(Seqs.seq(Collections.singletonList(value)))).iterator();
        try (var batches = ArrowConverters$.MODULE$.toBatchWithSchemaIterator(rows, type, 1, Long.MAX_VALUE, "UTC", false, false)) {
            return batches.next();
        }
    }

    // ---------------------------------------------------------------- what is asked for

    /** Carry out *text*, which declares or sets something, fetches a row or closes a cursor; return the {@link Changes} as JSON. */
    public static String change(SparkSession session, String text) throws ParseException {
        LogicalPlan plan = ScriptTree.statement(session, text);
        if (!(plan instanceof CreateVariable || plan instanceof SetVariable || plan instanceof DeclareCursor || plan instanceof FetchCursor
                || plan instanceof CloseCursor)) {
            throw new RefusedException("a " + plan.getClass().getSimpleName() + " changes no variable of a script");
        }
        Set<Object> before = Collections.newSetFromMap(new IdentityHashMap<>());
        each((frame, block, scope) -> {
            before.addAll(Seqs.list(scope.variables().values().toSeq()));
            before.addAll(Seqs.list(scope.cursorStates().values().toSeq()));
        });
        Dataset.ofRows(session, plan);
        var changes = new Changes(new ArrayList<>(), new ArrayList<>());
        each((frame, block, scope) -> {
            for (var each : Seqs.each(scope.variables().iterator())) {
                if (!before.contains(each._2())) {
                    changes.variables.add(variable(frame, block, each._1(), each._2()));
                }
            }
            for (var each : Seqs.each(scope.cursors().iterator())) {
                CursorState state = scope.cursorStates().apply(each._1());
                String name = state instanceof CursorDeclared$ ? DECLARED : state instanceof CursorClosed$ ? CLOSED : OPEN;
                changes.cursors.add(new Cursor(frame, block, each._1(), each._2().name(), each._2().queryText(), name, "", new byte[0]));
            }
        });
        return Json.text(changes);
    }

    private static Variable variable(int frame, int block, String name, VariableDefinition definition) {
        Literal value = definition.currentValue();
        StructType type = new StructType().add("value", value.dataType());
        return new Variable(frame, block, name, type.json(), stream(type, value.value()), definition.defaultValueSQL());
    }

    /** Return of *text*, an OPEN, which cursor it opens, and the query that gives its rows: {@link Opened}, as JSON. */
    public static String open(SparkSession session, String text) throws ParseException {
        LogicalPlan plan = ScriptTree.statement(session, text);
        OpenCursor resolved = (OpenCursor) session.sessionState().executePlan(plan, CommandExecutionMode.SKIP()).analyzed();
        CursorReference cursor = (CursorReference) resolved.cursor();
        var state = context().getCursorState(cursor);
        if (state.isEmpty() || state.get() instanceof CursorOpened) {
            Dataset.ofRows(session, plan); // throws
        }
        var given = ParameterBindingUtils$.MODULE$.buildUnifiedParameters(resolved.args(), resolved.paramNames());
        String query = bound(cursor.definition().queryText(), given._1(), given._2());
        List<Opened> found = new ArrayList<>();
        each((frame, block, scope) -> {
            for (var each : Seqs.each(scope.cursors().iterator())) {
                if (each._2() == cursor.definition()) {
                    found.add(new Opened(frame, block, each._1(), query));
                }
            }
        });
        return Json.text(found.get(0));
    }

    /** Return what *text*, an EXECUTE IMMEDIATE, stands for: {@link Immediate}, as JSON. */
    public static String immediate(SparkSession session, String text) throws ParseException {
        var plan = (UnresolvedExecuteImmediate) ScriptTree.statement(session, text);
        List<Expression> given = new ArrayList<>(List.of(plan.sqlStmtStr()));
        given.addAll(Seqs.list(plan.args()));
        given.addAll(Seqs.list(plan.targetVariables()));
        Seq<NamedExpression> named = Seqs.seq(given.stream()
                .map(each -> each instanceof NamedExpression known ? known : (NamedExpression) Expressions.alias(each, "")).toList());
        LogicalPlan analyzed = session.sessionState().executePlan(new Project(named, new OneRowRelation()), CommandExecutionMode.SKIP()).analyzed();
        List<Expression> resolved = Seqs.list(((Project) analyzed).projectList()).stream()
                .map(each -> each.name().isEmpty() ? ((Alias) each).child() : (Expression) each).toList();
        String query = query(resolved.get(0));
        var values = ParameterBindingUtils$.MODULE$.buildUnifiedParameters(Seqs.seq(resolved.subList(1, 1 + plan.args().size())),
                ParameterBindingUtils$.MODULE$.buildUnifiedParameters$default$2());
        String bound = bound(query, values._1(), values._2());
        LogicalPlan inner = session.sessionState().sqlParser().parsePlan(bound);
        if (inner instanceof CompoundBody) {
            throw sneaky(QueryCompilationErrors$.MODULE$.sqlScriptInExecuteImmediate(query));
        }
        List<String> into = Seqs.list(plan.targetVariables()).stream().map(Expression::sql).toList();
        String what = ScriptTree.kind(inner);
        if (!into.isEmpty() && what.equals("command")) {
            throw sneaky(QueryCompilationErrors$.MODULE$.invalidStatementForExecuteInto(query));
        }
        return Json.text(new Immediate(bound, what, into));
    }

    private static String query(Expression text) {
        try {
            return (String) text().invoke(ResolveExecuteImmediate$.MODULE$, text);
        } catch (InvocationTargetException e) {
            throw sneaky(e.getCause());
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Method text() {
        try {
            var method = ResolveExecuteImmediate$.class.getDeclaredMethod("extractQueryString", Expression.class);
            method.setAccessible(true);
            return method;
        } catch (NoSuchMethodException e) {
            throw new IllegalStateException("EXECUTE IMMEDIATE is resolved in another way here", e);
        }
    }

    /** Return *text* with *values* in its places, as `SparkSession.sql` has them; *names*: theirs, or empty ones. */
    private static String bound(String text, Object[] values, String[] names) {
        if (values.length == 0) {
            return text;
        }
        List<Expression> literals = Arrays.stream(values)
                .map(each -> each instanceof Expression known ? known : (Expression) Literal$.MODULE$.apply(each)).toList();
        return ParameterHandler.substituteParameters(text, new HybridParameterContext(Seqs.seq(literals), Seqs.seq(names)))._1();
    }

    private interface Visit {
        void accept(int frame, int block, SqlScriptingExecutionScope scope);
    }

    private static void each(Visit visit) {
        var frames = context().frames();
        for (int frame = 0; frame < frames.size(); frame++) {
            var scopes = frames.apply(frame).scopes();
            for (int block = 0; block < scopes.size(); block++) {
                visit.accept(frame, block, scopes.apply(block));
            }
        }
    }

    private static SqlScriptingExecutionContext context() {
        return (SqlScriptingExecutionContext) SqlScriptingContextManager$.MODULE$.get().get().getContext();
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> RuntimeException sneaky(Throwable error) throws E {
        throw (E) error;
    }
}
