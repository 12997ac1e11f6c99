package onager.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.math.Ordering;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractPartialFunction;

/**
 * A scan of files without those directories that filters of the running query leave out. The filters' subqueries are there when a
 * stage is bound, so all its tasks, wherever they run, leave out the same, and share what is left as if nothing else had been
 * planned; of tasks there are as many as planned, some without files.
 */
public final class PrunedScanExec extends OwnExec {
    private final Seq filters;
    private final int tasks;

    /** *tasks*: how many were planned. */
    public PrunedScanExec(Seq filters, SparkPlan scan, int tasks) {
        super(scan);
        this.filters = filters;
        this.tasks = tasks;
    }

    /** Returns the scan of the directories that are left; the subqueries have their results by now. */
    private FileSourceScanExec pruned() {
        FileSourceScanExec files = (FileSourceScanExec) child;
        StructType columns = files.relation().partitionSchema();
        Object[] predicates = new Object[filters.size()];
        for (int i = 0; i < predicates.length; i++) {
            predicates[i] = predicate((Expression) filters.apply(i), columns);
        }
        ArrayList left = new ArrayList();
        Iterator all = files.relation().location().listFiles(PlanTools.noItems(), PlanTools.noItems()).iterator();
        while (all.hasNext()) {
            PartitionDirectory directory = (PartitionDirectory) all.next();
            if (holds(predicates, directory.values())) {
                left.add(directory);
            }
        }
        return Leaves.over(files, left);
    }

    private static boolean holds(Object[] predicates, InternalRow values) {
        for (int i = 0; i < predicates.length; i++) {
            if (predicates[i] != null && !((BasePredicate) predicates[i]).eval(values)) {
                return false;
            }
        }
        return true;
    }

    /** Returns null where the filter needs more than a directory's values. */
    private static BasePredicate predicate(Expression filter, StructType columns) {
        Iterator attributes = filter.references().iterator();
        while (attributes.hasNext()) {
            if (!columns.getFieldIndex(((Attribute) attributes.next()).name()).isDefined()) {
                return null;
            }
        }
        return Predicate$.MODULE$.createInterpreted((Expression) filter.transform(new OfDirectory(columns)));
    }

    private static final class OfDirectory extends AbstractPartialFunction {
        private final StructType columns;

        OfDirectory(StructType columns) {
            this.columns = columns;
        }

        public boolean isDefinedAt(Object expression) {
            return expression instanceof AttributeReference;
        }

        public Object applyOrElse(Object expression, Function1 otherwise) {
            if (!isDefinedAt(expression)) {
                return otherwise.apply(expression);
            }
            int index = columns.fieldIndex(((AttributeReference) expression).name());
            return new BoundReference(index, columns.apply(index).dataType(), true);
        }
    }

    /** Returns *rows* in as many partitions as planned. */
    private RDD inTasks(RDD rows) {
        int there = rows.getNumPartitions();
        if (there > tasks) {
            return rows.coalesce(tasks, false, Option.empty(), (Ordering) null);
        }
        if (there == tasks) {
            return rows;
        }
        List both = new ArrayList();
        both.add(rows);
        both.add(sparkContext().parallelize(PlanTools.noItems(), tasks - there, ClassTag$.MODULE$.apply(Object.class)));
        return sparkContext().union(PlanTools.seq(both), ClassTag$.MODULE$.apply(Object.class));
    }

    public RDD doExecute() {
        return inTasks(pruned().execute());
    }

    public RDD doExecuteColumnar() {
        return inTasks(pruned().executeColumnar());
    }

    public boolean supportsColumnar() {
        return child.supportsColumnar();
    }

    public Seq output() {
        return child.output();
    }

    public Partitioning outputPartitioning() {
        return new UnknownPartitioning(tasks);
    }

    SparkPlan over(SparkPlan other) {
        return new PrunedScanExec(filters, other, tasks);
    }

    Object[] parts() {
        return new Object[] {filters, child, Integer.valueOf(tasks)};
    }

    public String nodeName() {
        return "Pruned";
    }
}
