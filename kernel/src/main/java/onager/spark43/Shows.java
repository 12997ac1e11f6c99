package onager.spark43;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import onager.values.Seqs;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CreateStruct$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.CollectList;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Limit$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/** What {@code show()} prints, as the only row of a dataset: computed at once, or by a query that can be distributed. */
public final class Shows {
    private static final String VERTICAL = "vertical";
    private static final String HTML = "html";
    private static final String NAME = "show_string";
    private static final String HTML_NAME = "html_string";

    private Shows() {}

    /** What is shown of a dataset: at most *rows* rows, texts of at most *truncate* characters. */
    private record Style(int rows, int truncate, String style) {
        String of(Dataset<Row> frame) {
            return style.equals(HTML) ? frame.htmlString(rows, truncate) : frame.showString(rows, truncate, style.equals(VERTICAL));
        }

        String name() {
            return style.equals(HTML) ? HTML_NAME : NAME;
        }
    }

    /** Runs *frame* as far as need be, and returns a dataset of the text. */
    public static Dataset<Row> now(Dataset<Row> frame, int rows, int truncate, String style) {
        Style wanted = new Style(rows, truncate, style);
        InternalRow text = InternalRow.fromSeq(Seqs.seq(UTF8String.fromString(wanted.of(frame))));
        Attribute column = Expressions.attribute(wanted.name(), StringType$.MODULE$);
        return Dataset.ofRows(frame.sparkSession(), new LocalRelation(Seqs.seq(column), Seqs.seq(text), false, Option.empty()));
    }

    /** Returns the query for the text: it takes the first rows of *frame* together, and prints them. */
    public static Dataset<Row> query(Dataset<Row> frame, int rows, int truncate, String style) {
        Style wanted = new Style(rows, truncate, style);
        LogicalPlan plan = frame.queryExecution().analyzed();
        long most = Math.min(Math.max(rows, 0) + 1L, Integer.MAX_VALUE - 1); // one more tells that there are more
        LogicalPlan first = (LogicalPlan) Limit$.MODULE$.apply(Literal$.MODULE$.apply((int) most), plan);
        Expression row = CreateStruct$.MODULE$.create(Seqs.<Expression>seq(new ArrayList<Expression>(Seqs.list(plan.output()))));
        Alias all = Expressions.alias(new CollectList(row).toAggregateExpression(), "rows");
        LogicalPlan together = new Aggregate(Seqs.seq(), Seqs.<NamedExpression>seq(all), first, Option.empty());
        var conf = frame.sparkSession().sessionState().conf();
        List<Object> arguments = List.of(frame.schema().json(), rows, truncate, style, conf.sessionLocalTimeZone());
        List<Expression> given = new ArrayList<>(List.of(all.toAttribute()));
        arguments.forEach(each -> given.add(Literal$.MODULE$.apply(each)));
        Expression text = new StaticInvoke(Shows.class, StringType$.MODULE$, "shown", Seqs.seq(given), Seqs.seq(), true, false, true, Option.empty());
        return Dataset.ofRows(frame.sparkSession(), new Project(Seqs.<NamedExpression>seq(Expressions.alias(text, wanted.name())), together));
    }

    /** Returns the text for *rows*, structs of *schema*. A task calls it, where there can be no session; so another thread does it. */
    public static UTF8String shown(ArrayData rows, UTF8String schema, int most, int truncate, UTF8String style, UTF8String zone) {
        StructType type = (StructType) DataType.fromJson(schema.toString());
        List<InternalRow> copied = new ArrayList<>();
        for (int i = 0; i < rows.numElements(); i++) {
            copied.add(rows.getStruct(i, type.size()).copy());
        }
        Style wanted = new Style(most, truncate, style.toString());
        return CompletableFuture.supplyAsync(() -> {
            SparkSession session = SparkSession.getDefaultSession().get().newSession();
            session.conf().set("spark.sql.session.timeZone", zone.toString());
            var columns = Seqs.<Attribute>seq(new ArrayList<Attribute>(Seqs.list(DataTypeUtils$.MODULE$.toAttributes(type))));
            return UTF8String.fromString(wanted.of(Dataset.ofRows(session, new LocalRelation(columns, Seqs.seq(copied), false, Option.empty()))));
        }).join();
    }
}
