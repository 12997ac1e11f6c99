import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** What programs do with Spark's JDBC driver: queries, statements that make, write and drop tables, and metadata. Prints a line for each. */
public final class JdbcProgram {
    private JdbcProgram() {}

    private static List<String> rows(ResultSet result) throws SQLException {
        List<String> found = new ArrayList<>();
        int columns = result.getMetaData().getColumnCount();
        while (result.next()) {
            List<String> row = new ArrayList<>();
            for (int i = 1; i <= columns; i++) {
                row.add(String.valueOf(result.getObject(i)));
            }
            found.add(String.join(",", row));
        }
        return found;
    }

    private static List<String> column(ResultSet result, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        while (result.next()) {
            found.add(result.getString(name));
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection("jdbc:" + arguments[0]);
                Statement statement = connection.createStatement()) {
            System.out.println("create " + statement.execute("CREATE TABLE jdbc_sold (id INT, what STRING) USING parquet"));
            System.out.println("insert " + statement.executeUpdate("INSERT INTO jdbc_sold VALUES (1, 'a'), (2, NULL)"));
            System.out.println("ctas " + statement.execute("CREATE TABLE jdbc_copy USING parquet AS SELECT id + 10 AS id FROM jdbc_sold"));
            System.out.println("rows " + rows(statement.executeQuery("SELECT * FROM jdbc_sold ORDER BY id")));
            System.out.println("copy " + rows(statement.executeQuery("SELECT sum(id) FROM jdbc_copy")));
            System.out.println("query " + statement.execute("SELECT 1 AS one") + " " + rows(statement.getResultSet()));
            System.out.println("show " + rows(statement.executeQuery("SHOW TABLES LIKE 'jdbc_*'")));
            DatabaseMetaData reported = connection.getMetaData();
            System.out.println("product " + reported.getDatabaseProductName() + " " + reported.getDatabaseProductVersion());
            System.out.println("catalogs " + rows(reported.getCatalogs()));
            System.out.println("schemas " + column(reported.getSchemas(), "TABLE_SCHEM").contains("default"));
            System.out.println("tables " + column(reported.getTables(null, "default", "jdbc%", null), "TABLE_NAME"));
            System.out.println("columns " + column(reported.getColumns(null, "default", "jdbc_sold", "%"), "COLUMN_NAME"));
            System.out.println("schema " + connection.getCatalog() + "." + connection.getSchema());
            try {
                statement.executeUpdate("INSERT INTO jdbc_sold VALUES (3)");
            } catch (SQLException e) {
                System.out.println("mistake " + e.getSQLState());
            }
            System.out.println("drop " + statement.execute("DROP TABLE jdbc_sold") + statement.execute("DROP TABLE jdbc_copy"));
            System.out.println("left " + rows(statement.executeQuery("SHOW TABLES LIKE 'jdbc_*'")));
        }
    }
}
