package onager.plan;

import java.util.ArrayList;
import onager.spark43.Lookups;
import onager.values.Json;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;

/** Splits a script into statements. */
public final class Scripts {
    private Scripts() {}

    /**
     * A statement: its start and end in code points, and the line and column of its start. A procedure starts with {@code BEGIN}, with or
     * without a label; *analyzedFrom*: where the query of {@code EXPLAIN ANALYZE} begins, which Spark does not know; 0: it is none.
     */
    record Statement(int begin, int end, int line, int column, boolean isProcedure, int analyzedFrom) {}

    /**
     * Returns the statements, as JSON. Comments between statements are left out.
     *
     * <p>Spark's lexer recognises strings and comments independently of settings, which only its parser reads.
     */
    public static String statements(String text) {
        SqlBaseLexer lexer = Lookups.lexer(text);
        var found = new ArrayList<Statement>();
        Token first = null;
        Token before = null; // the previous token of the same statement
        int tokens = 0;
        boolean isProcedure = false;
        int analyzed = 0; // where EXPLAIN ANALYZE ends
        while (true) {
            Token token = lexer.nextToken();
            int type = token.getType();
            if (type == Token.EOF || type == SqlBaseLexer.SEMICOLON) {
                if (first != null) {
                    int begin = first.getStartIndex();
                    found.add(new Statement(begin, token.getStartIndex(), first.getLine(), first.getCharPositionInLine(), isProcedure,
                            analyzed == 0 ? 0 : analyzed - begin));
                }
                if (type == Token.EOF) {
                    return Json.text(found);
                }
                first = null;
                before = null;
                tokens = 0;
                isProcedure = false;
                analyzed = 0;
            } else if (token.getChannel() == Token.DEFAULT_CHANNEL) {
                first = first == null ? token : first;
                tokens++;
                boolean isLabelled = tokens == 3 && before.getType() == SqlBaseLexer.COLON;
                isProcedure = isProcedure || type == SqlBaseLexer.BEGIN && (tokens == 1 || isLabelled);
                if (tokens == 2 && before.getType() == SqlBaseLexer.EXPLAIN && type == SqlBaseLexer.ANALYZE) {
                    analyzed = token.getStopIndex() + 1;
                }
                before = token;
            } else if (first == null && lexer.has_unclosed_bracketed_comment) {
                first = token; // an unclosed comment, which Spark refuses
            }
        }
    }
}
