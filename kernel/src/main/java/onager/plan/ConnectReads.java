package onager.plan;

import java.io.IOException;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;
import onager.spark43.ConnectSession;
import onager.values.Seqs;
import org.apache.spark.connect.proto.AnalyzePlanRequest;
import org.apache.spark.connect.proto.CachedRemoteRelation;
import org.apache.spark.connect.proto.CallFunction;
import org.apache.spark.connect.proto.Catalog;
import org.apache.spark.connect.proto.Command;
import org.apache.spark.connect.proto.Expression.ExpressionString;
import org.apache.spark.connect.proto.Expression.UnresolvedAttribute;
import org.apache.spark.connect.proto.Read.DataSource;
import org.apache.spark.connect.proto.Read.NamedTable;
import org.apache.spark.connect.proto.Relation;
import org.apache.spark.connect.proto.RelationChanges;
import org.apache.spark.connect.proto.SQL;
import org.apache.spark.connect.proto.SqlCommand;
import org.apache.spark.sql.catalyst.analysis.ExpressionWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedGenerator;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.CreateFunctionCommand;
import org.apache.spark.sql.execution.command.CreateSQLFunctionCommand;
import org.apache.spark.sql.execution.command.CreateViewCommand;
import org.apache.spark.sql.execution.datasources.CreateTempViewUsing;
import org.sparkproject.connect.protobuf.Message;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;

/** Which views, functions, data sources, variables and checkpoints a command of Spark Connect reads, by the names in it. */
public final class ConnectReads {
    private static final String ANYTHING = "*";
    /** Statements of which it is known what they read. */
    private static final Set<Class<?>> MAKES = Set.of(CreateViewCommand.class, CreateTempViewUsing.class, CreateSQLFunctionCommand.class, CreateFunctionCommand.class);

    private final Set<String> found = new TreeSet<>();
    private final ParserInterface parser;
    private final boolean hasVariables;

    private ConnectReads(ParserInterface parser, boolean hasVariables) {
        this.parser = parser;
        this.hasVariables = hasVariables;
    }

    /**
     * Returns kind and name of each that an encoded Command, Relation or AnalyzePlanRequest, the *kind* of *message*, reads, such as
     * "view sales", in lower case; "*" for whatever there is. Texts are parsed as in *session*. *hasVariables*: any name of a column may be
     * that of a variable.
     */
    public static List<String> of(SparkSession session, String kind, byte[] message, boolean hasVariables) throws IOException {
        ConnectSession.Parser<Message> parser = switch (kind) {
            case "Command" -> Command::parseFrom;
            case "Relation" -> Relation::parseFrom;
            default -> AnalyzePlanRequest::parseFrom;
        };
        ConnectReads reads = new ConnectReads(session.sessionState().sqlParser(), hasVariables);
        reads.message(ConnectSession.parsed(message, parser));
        return List.copyOf(reads.found);
    }

    @SuppressWarnings("deprecation") // older clients put the text of SQL into the command
    private void message(Message message) {
        if (message instanceof NamedTable table) {
            parsed(parser::parseMultipartIdentifier, table.getUnparsedIdentifier(), this::relation);
        } else if (message instanceof RelationChanges changes) {
            parsed(parser::parseMultipartIdentifier, changes.getUnparsedIdentifier(), this::relation);
        } else if (message instanceof DataSource source) {
            add("data_source", source.getFormat());
        } else if (message instanceof CachedRemoteRelation relation) {
            add("relation", relation.getRelationId());
        } else if (message instanceof org.apache.spark.connect.proto.Expression.UnresolvedFunction function) {
            function(function.getFunctionName());
        } else if (message instanceof org.apache.spark.connect.proto.UnresolvedTableValuedFunction function) {
            function(function.getFunctionName());
        } else if (message instanceof Catalog) {
            found.add(ANYTHING);
        } else if (message instanceof UnresolvedAttribute attribute) {
            if (hasVariables) {
                parsed(parser::parseMultipartIdentifier, attribute.getUnparsedIdentifier(), this::variable);
            }
        } else if (message instanceof CallFunction call) {
            function(call.getFunctionName());
        } else if (message instanceof ExpressionString text) {
            parsed(parser::parseExpression, text.getExpression(), this::syntax);
        } else if (message instanceof SQL sql) {
            parsed(parser::parsePlan, sql.getQuery(), this::syntax);
        } else if (message instanceof SqlCommand command && !command.hasInput()) {
            parsed(parser::parsePlan, command.getSql(), this::syntax);
        }
        for (Object field : message.getAllFields().values()) {
            for (Object each : field instanceof Collection<?> many ? many : List.of(field)) {
                if (each instanceof Message inner) {
                    message(inner);
                }
            }
        }
    }

    private interface Parse<T> {
        T of(String text) throws ParseException;
    }

    private <T> void parsed(Parse<T> parse, String text, Consumer<T> then) {
        try {
            then.accept(parse.of(text));
        } catch (ParseException e) { // parameters may stand where only their values are SQL
            found.add(ANYTHING);
        }
    }

    /** Goes through whatever a parsed plan holds. What Spark has yet to resolve it keeps in case classes. */
    private void syntax(Object part) {
        if (part instanceof UnresolvedRelation relation) {
            relation(relation.multipartIdentifier());
        } else if (part instanceof UnresolvedTableValuedFunction function) {
            function(function.name());
        } else if (part instanceof UnresolvedFunction function) {
            function(function.nameParts());
        } else if (part instanceof UnresolvedGenerator generator) {
            function(generator.name().funcName());
        } else if (part instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute attribute) {
            variable(attribute.nameParts());
        } else if (part instanceof CreateTempViewUsing view) {
            add("data_source", view.provider());
        } else if (part instanceof CreateSQLFunctionCommand function) {
            given(function.exprText()).forEach(text -> parsed(parser::parseExpression, text, this::syntax));
            given(function.queryText()).forEach(text -> parsed(parser::parsePlan, text, this::syntax));
        } else if (part instanceof PlanWithUnresolvedIdentifier || part instanceof ExpressionWithUnresolvedIdentifier
                || (part instanceof LogicalPlan plan && Queries.isCommand(plan) && !MAKES.contains(plan.getClass()))) {
            found.add(ANYTHING);
        }
        if (part instanceof scala.collection.Iterable<?> many) {
            Seqs.each(many.iterator()).forEach(this::syntax);
        } else if (part instanceof Product whole) {
            Seqs.each(whole.productIterator()).forEach(this::syntax);
        }
    }

    private void relation(Seq<String> name) {
        add("view", name.last());
        if (name.size() > 1) {
            add("global_view", name.last());
            add("data_source", name.head()); // of a path: format.`path`
        }
    }

    private void variable(Seq<String> name) {
        if (hasVariables) { // of which fields may be asked for
            Seqs.list(name).forEach(part -> add("variable", part));
        }
    }

    private void function(String name) {
        add("function", name.substring(name.lastIndexOf('.') + 1));
    }

    private void function(Seq<String> name) {
        add("function", name.last());
    }

    private void add(String kind, String name) {
        found.add(kind + " " + name.replace("`", "").toLowerCase(Locale.ROOT));
    }

    private static List<String> given(Option<String> text) {
        return Seqs.list(text.toList());
    }
}
