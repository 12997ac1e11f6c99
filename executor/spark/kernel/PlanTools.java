package onager.kernel;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.NotSerializableException;
import java.io.ObjectOutputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.rdd.EmptyRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.RangePartitioning;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.LocalLimitExec;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.RowToColumnarExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.joins.BaseJoinExec;
import org.apache.spark.sql.execution.joins.BroadcastNestedLoopJoinExec;
import org.apache.spark.sql.execution.python.MapInBatchExec;
import org.apache.spark.sql.internal.SQLConf;
import scala.Function1;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractPartialFunction;

/**
 * What the planner asks of a physical plan, in one call each instead of one call per node: an outline to decide on,
 * and fragments with some nodes replaced.
 */
public final class PlanTools {
    private static final String BY_ORDER = " First Last CollectList ListAgg MaxBy MinBy Mode HistogramNumeric ";
    private static final String PYTHON = "org.apache.spark.sql.execution.python.";

    private PlanTools() {}

    /** Raises when Spark has no class of a name by which one is looked for here. */
    static void check() {
        String[] names = BY_ORDER.trim().split(" ");
        for (int i = 0; i < names.length; i++) {
            String name = AggregateExpression.class.getPackage().getName() + "." + names[i];
            try {
                Class.forName(name, false, AggregateExpression.class.getClassLoader());
            } catch (ClassNotFoundException e) {
                throw new IllegalStateException("there is no class " + name + " here", e);
            }
        }
    }

    /**
     * Lists every node of a plan, parents first, those of subqueries included; code generation and row/column
     * transitions are left out.
     *
     * @return {String, List of SparkPlan}: one line per node, and the nodes in the same order. The fields of a line
     *     are separated by tabs: the parent's line (-1 for the root), role (child, subquery, reused), simple class
     *     name, plan id, letters ("n": an expression is not deterministic, "p": runs Python, "o": aggregates in the order of its
     *     rows), and what is particular to its class ("" for most).
     */
    public static Object[] outline(SparkPlan root) {
        StringBuilder text = new StringBuilder();
        ArrayList nodes = new ArrayList();
        HashSet seen = new HashSet();
        ArrayList reused = new ArrayList();
        walk(root, -1, "child", text, nodes, seen, reused);
        for (int i = 0; i < reused.size(); i++) {
            Object[] entry = (Object[]) reused.get(i);
            SparkPlan exchange = (SparkPlan) entry[1];
            if (!seen.contains(Integer.valueOf(exchange.id()))) {
                walk(exchange, ((Integer) entry[0]).intValue(), "reused", text, nodes, seen, reused);
            }
        }
        return new Object[] {text.toString(), nodes};
    }

    private static void walk(
            SparkPlan wrapped, int parent, String role, StringBuilder text, List nodes, HashSet seen, List reused) {
        SparkPlan node = unwrapped(wrapped);
        int index = nodes.size();
        nodes.add(node);
        seen.add(Integer.valueOf(node.id()));
        text.append(parent).append('\t').append(role).append('\t');
        text.append(node.getClass().getSimpleName()).append('\t').append(node.id()).append('\t');
        text.append(isDeterministic(node) ? "" : "n");
        text.append(node.getClass().getName().startsWith(PYTHON) ? "p" : "");
        text.append(mindsOrder(node) ? "o" : "").append('\t');
        text.append(particulars(node)).append('\n');
        if (node instanceof ReusedExchangeExec) {
            reused.add(new Object[] {Integer.valueOf(index), ((ReusedExchangeExec) node).child()});
        }
        if (node instanceof ReusedSubqueryExec) {
            reused.add(new Object[] {Integer.valueOf(index), ((ReusedSubqueryExec) node).child()});
        } else {
            Iterator children = node.children().iterator();
            while (children.hasNext()) {
                walk((SparkPlan) children.next(), index, "child", text, nodes, seen, reused);
            }
        }
        Iterator subqueries = node.subqueries().iterator();
        while (subqueries.hasNext()) {
            walk((SparkPlan) subqueries.next(), index, "subquery", text, nodes, seen, reused);
        }
    }

    private static SparkPlan unwrapped(SparkPlan wrapped) {
        SparkPlan node = wrapped;
        while (node instanceof WholeStageCodegenExec
                || node instanceof InputAdapter
                || node instanceof ColumnarToRowExec
                || node instanceof RowToColumnarExec) {
            node = (SparkPlan) node.children().head();
        }
        return node;
    }

    private static boolean isDeterministic(SparkPlan node) {
        Iterator expressions = node.expressions().iterator();
        while (expressions.hasNext()) {
            if (!((Expression) expressions.next()).deterministic()) {
                return false;
            }
        }
        return true;
    }

    private static boolean mindsOrder(SparkPlan node) {
        if (!(node instanceof BaseAggregateExec)) {
            return false;
        }
        Iterator aggregates = ((BaseAggregateExec) node).aggregateExpressions().iterator();
        while (aggregates.hasNext()) {
            Object function = ((AggregateExpression) aggregates.next()).aggregateFunction();
            if (BY_ORDER.contains(" " + function.getClass().getSimpleName() + " ")) {
                return true;
            }
        }
        return false;
    }

    private static String particulars(SparkPlan node) {
        if (node instanceof ShuffleExchangeExec) {
            Partitioning partitioning = ((ShuffleExchangeExec) node).outputPartitioning();
            return partitioning.getClass().getSimpleName().replace("$", "") + " " + partitioning.numPartitions() + " "
                    + ((ShuffleExchangeExec) node).shuffleOrigin();
        }
        if (node instanceof ReusedExchangeExec) {
            SparkPlan exchange = ((ReusedExchangeExec) node).child();
            return exchange.id() + " " + exchange.getClass().getSimpleName();
        }
        if (node instanceof ReusedSubqueryExec) {
            return String.valueOf(((ReusedSubqueryExec) node).child().id());
        }
        if (node instanceof CoalesceExec) {
            return String.valueOf(((CoalesceExec) node).numPartitions());
        }
        if (node instanceof BaseAggregateExec) {
            return ((BaseAggregateExec) node).requiredChildDistributionExpressions().isDefined() ? "final" : "partial";
        }
        if (node instanceof BroadcastNestedLoopJoinExec) {
            return looksAtAllPartitions((BroadcastNestedLoopJoinExec) node) ? "all" : "";
        }
        if (node instanceof BaseJoinExec) {
            return String.valueOf(((BaseJoinExec) node).joinType()).replace("$", "");
        }
        if (node instanceof MapInBatchExec) {
            return ((MapInBatchExec) node).isBarrier() ? "barrier" : "";
        }
        return "";
    }

    /**
     * Says whether a join emits broadcast rows, once, by what they met in any partition: Spark finds that out with a job
     * over all partitions, and gives these rows in partitions of their own, as many as the process has cores.
     */
    private static boolean looksAtAllPartitions(BroadcastNestedLoopJoinExec join) {
        String type = String.valueOf(join.joinType()).replace("$", "");
        if (type.equals("Inner") || type.equals("Cross")) {
            return false;
        }
        boolean buildsRight = String.valueOf(join.buildSide()).replace("$", "").equals("BuildRight");
        if (type.equals("RightOuter")) {
            return buildsRight;
        }
        return type.equals("FullOuter") || !buildsRight;
    }

    /** Says whether a join in {@code plan} is of that kind: it reads its input twice, or shuffles. */
    static boolean hasJoinOverAllPartitions(SparkPlan plan) {
        if (plan instanceof BroadcastNestedLoopJoinExec && looksAtAllPartitions((BroadcastNestedLoopJoinExec) plan)) {
            return true;
        }
        Iterator each = plan.children().iterator();
        boolean found = false;
        while (each.hasNext()) {
            found = hasJoinOverAllPartitions((SparkPlan) each.next()) || found;
        }
        return found;
    }

    /** Returns {@code child} in one partition. */
    public static SparkPlan inOneTask(SparkPlan child) {
        return new CoalesceExec(1, child);
    }

    /** Returns a copy of a plan without code generation and transitions, each node of {@code cut} replaced. */
    public static SparkPlan fragment(SparkPlan root, List cut, List replacements) {
        IdentityHashMap map = new IdentityHashMap();
        for (int i = 0; i < cut.size(); i++) {
            map.put(cut.get(i), replacements.get(i));
        }
        return replaced(root, map);
    }

    private static SparkPlan replaced(SparkPlan wrapped, IdentityHashMap map) {
        SparkPlan node = unwrapped(wrapped);
        Object replacement = map.get(node);
        if (replacement != null) {
            return (SparkPlan) replacement;
        }
        if (!node.subqueries().isEmpty()) {
            node = (SparkPlan) node.transformExpressions(new SubqueryReplacement(map));
        }
        Seq children = node.children();
        if (children.isEmpty()) {
            return node;
        }
        ArrayList made = new ArrayList();
        Iterator old = children.iterator();
        boolean isChanged = false;
        while (old.hasNext()) {
            SparkPlan child = (SparkPlan) old.next();
            SparkPlan other = replaced(child, map);
            isChanged = isChanged || other != child;
            made.add(other);
        }
        return isChanged ? (SparkPlan) node.withNewChildren(seq(made)) : node;
    }

    private static final class SubqueryReplacement extends AbstractPartialFunction {
        private final IdentityHashMap map;

        SubqueryReplacement(IdentityHashMap map) {
            this.map = map;
        }

        public boolean isDefinedAt(Object expression) {
            return expression instanceof ExecSubqueryExpression;
        }

        public Object applyOrElse(Object expression, Function1 otherwise) {
            if (!(expression instanceof ExecSubqueryExpression)) {
                return otherwise.apply(expression);
            }
            ExecSubqueryExpression subquery = (ExecSubqueryExpression) expression;
            return subquery.withNewPlan((BaseSubqueryExec) replaced((SparkPlan) subquery.plan(), map));
        }
    }

    /** Returns the leaf that stands for an input of a stage: {@code like} gives the columns. */
    public static SparkPlan placeholder(SparkPlan like, String name) {
        return placeholder(like, like.output(), name);
    }

    /** Returns the leaf that stands for an input of {@code columns}, in the session of {@code beside}. */
    static SparkPlan placeholder(SparkPlan beside, Seq columns, String name) {
        RDD none = new EmptyRDD(beside.session().sparkContext(), ClassTag$.MODULE$.apply(Object.class));
        return new RDDScanExec(columns, none, name, new UnknownPartitioning(0), noItems(), Option.apply(null));
    }

    /** Returns a node with its only child replaced. */
    public static SparkPlan withChild(SparkPlan node, SparkPlan child) {
        ArrayList children = new ArrayList();
        children.add(child);
        return (SparkPlan) node.withNewChildren(seq(children));
    }

    /**
     * Returns the first rows of each partition that a limit above could take, over {@code child}: all of them where their order depends
     * on a subquery, whose result is known above alone.
     */
    public static SparkPlan localLimit(SparkPlan limit, SparkPlan child) {
        if (limit instanceof TakeOrderedAndProjectExec) {
            TakeOrderedAndProjectExec top = (TakeOrderedAndProjectExec) limit;
            for (int i = 0; i < top.sortOrder().size(); i++) {
                if (ExecSubqueryExpression.hasSubquery((Expression) top.sortOrder().apply(i))) {
                    return child;
                }
            }
            return new LocalLimitExec(top.limit(), new SortExec(top.sortOrder(), false, child, 0));
        }
        int most = ((CollectLimitExec) limit).limit();
        return most < 0 ? child : new LocalLimitExec(most, child); // without a limit there is only an offset
    }

    /** Returns the Java serialisation of the order by which an exchange divides rows into ranges. */
    public static byte[] ordering(ShuffleExchangeExec exchange) throws IOException {
        return serialize(((RangePartitioning) exchange.outputPartitioning()).ordering());
    }

    /** Returns each partition of {@code child} in the order by which an exchange divides rows into ranges. */
    public static SparkPlan sorted(ShuffleExchangeExec exchange, SparkPlan child) {
        return new SortExec(((RangePartitioning) exchange.outputPartitioning()).ordering(), false, child, 0);
    }

    /**
     * Lists the Python functions in a node's expressions.
     *
     * @return one string each: name, number of broadcast variables, and "1" if it refers to an accumulator of the
     *     user's, separated by tabs.
     */
    public static String pythonFunctions(SparkPlan node) {
        StringBuilder text = new StringBuilder();
        Iterator expressions = node.expressions().iterator();
        while (expressions.hasNext()) {
            pythonFunctions((Expression) expressions.next(), text);
        }
        return text.toString();
    }

    private static void pythonFunctions(Expression expression, StringBuilder text) {
        if (expression instanceof PythonFuncExpression) {
            PythonFuncExpression function = (PythonFuncExpression) expression;
            PythonFunction code = function.func();
            text.append(function.name().replace('\t', ' ').replace('\n', ' ')).append('\t');
            text.append(code.broadcastVars().size()).append('\t');
            text.append(contains(code.command(), "_deserialize_accumulator") ? "1" : "0").append('\n');
        }
        Iterator children = expression.children().iterator();
        while (children.hasNext()) {
            pythonFunctions((Expression) children.next(), text);
        }
    }

    private static boolean contains(Seq command, String word) {
        byte[] bytes = new byte[command.size()];
        Iterator items = command.iterator();
        for (int i = 0; items.hasNext(); i++) {
            bytes[i] = ((Byte) items.next()).byteValue();
        }
        return new String(bytes, StandardCharsets.ISO_8859_1).contains(word);
    }

    /**
     * Returns the settings under which {@code session} plans, but for those that only a new process could have.
     *
     * @return "key\tvalue" one after another, separated by the character 0
     */
    public static String settings(SparkSession session) {
        SparkConf ofProcess = session.sparkContext().getConf();
        StringBuilder text = new StringBuilder();
        Iterator all = session.sessionState().conf().getAllConfs().iterator();
        while (all.hasNext()) {
            Tuple2 setting = (Tuple2) all.next();
            String key = (String) setting._1();
            if (!SQLConf.isStaticConfigKey(key) && (key.startsWith("spark.sql.") || !ofProcess.contains(key))) {
                text.append(key).append('\t').append(setting._2()).append('\0');
            }
        }
        return text.toString();
    }

    /** Returns the Java serialisation of a plan or an expression. */
    public static byte[] serialize(Object thing) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ObjectOutputStream stream = new Encoder(bytes);
        stream.writeObject(thing);
        stream.close();
        return bytes.toByteArray();
    }

    /**
     * Refuses broadcast variables: one is a number that each process resolves by itself, so in another one it would name another
     * value.
     */
    private static final class Encoder extends ObjectOutputStream {
        Encoder(OutputStream out) throws IOException {
            super(out);
            enableReplaceObject(true);
        }

        protected Object replaceObject(Object object) throws IOException {
            if (object instanceof Broadcast) {
                throw new NotSerializableException(Broadcast.class.getName());
            }
            return object;
        }
    }

    /** Writes the Java serialisation of a fragment into a file, and returns the fragment as text. */
    public static String finish(SparkPlan fragment, String target) throws IOException {
        write(target, fragment);
        return fragment.treeString();
    }

    /** Writes a Java serialisation into a file: the gateway to Python takes 40 ms for an answer above 8 KiB. */
    static void write(String target, Object thing) throws IOException {
        Files.write(Paths.get(target, new String[0]), serialize(thing), new OpenOption[0]);
    }

    static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }

    static Seq noItems() {
        return seq(new ArrayList());
    }
}
