package onager.plan;

import onager.spark43.Lookups;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;

/** Splits a script into statements. */
public final class Scripts {
    private Scripts() {}

    /**
     * Returns a line for each statement: its start and end in code points, the line and column of its start, and what it is: a procedure
     * ({@code BEGIN}, with or without a label), {@code EXPLAIN ANALYZE} with the end of these words, which Spark does not know, or plain.
     * Comments between statements are left out.
     *
     * <p>Spark's lexer recognises strings and comments independently of settings, which only its parser reads.
     */
    public static String statements(String text) {
        SqlBaseLexer lexer = Lookups.lexer(text);
        var out = new StringBuilder();
        Token first = null;
        Token before = null; // the previous token of the same statement
        int tokens = 0;
        boolean isProcedure = false;
        int analyzed = -1; // where EXPLAIN ANALYZE ends
        while (true) {
            Token token = lexer.nextToken();
            int type = token.getType();
            if (type == Token.EOF || type == SqlBaseLexer.SEMICOLON) {
                if (first != null) {
                    out.append(first.getStartIndex()).append(' ').append(token.getStartIndex()).append(' ').append(first.getLine())
                            .append(' ').append(first.getCharPositionInLine()).append(isProcedure ? " procedure" : analyzed < 0 ? " plain" : " analyze:" + analyzed).append('\n');
                }
                if (type == Token.EOF) {
                    return out.toString();
                }
                first = null;
                before = null;
                tokens = 0;
                isProcedure = false;
                analyzed = -1;
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
