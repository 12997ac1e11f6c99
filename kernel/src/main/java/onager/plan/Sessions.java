package onager.plan;

import java.util.TreeMap;
import onager.spark43.ProgramFiles;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The session in which a job is planned: whatever it gets or changes together, in one call. */
public final class Sessions {
    private Sessions() {}

    /** Makes *session* the active one of this thread, or none if it is null; returns the one before, or null. */
    public static org.apache.spark.sql.SparkSession activate(org.apache.spark.sql.SparkSession session) {
        var before = org.apache.spark.sql.SparkSession.getActiveSession();
        if (session == null) {
            org.apache.spark.sql.SparkSession.clearActiveSession();
        } else {
            org.apache.spark.sql.SparkSession.setActiveSession(session);
        }
        return before.isDefined() ? before.get() : null;
    }

    /**
     * Returns the settings of *session* by their names, as JSON, but for static ones, which only a new process can set; among them, which files
     * of a program it has. *names*, a JSON list, are settings that are there with their defaults, too.
     */
    public static String settings(SparkSession session, String names) {
        var found = new TreeMap<String, String>();
        for (String name : Json.read(names, String[].class)) {
            found.put(name, session.conf().get(name));
        }
        var ofProcess = session.sparkContext().getConf();
        for (var setting : Seqs.each(session.sessionState().conf().getAllConfs().iterator())) {
            String key = setting._1();
            if (!SQLConf.isStaticConfigKey(key) && !key.equals(ProgramFiles.KEY) && (key.startsWith("spark.sql.") || !ofProcess.contains(key))) {
                found.put(key, setting._2());
            }
        }
        String files = ProgramFiles.of(session);
        if (!files.isEmpty()) {
            found.put(ProgramFiles.KEY, files);
        }
        return Json.text(found);
    }

    /** Makes *changes*, values of settings as JSON; null unsets one. */
    public static void change(SparkSession session, String changes) {
        for (var change : Json.tree(changes).properties()) {
            if (change.getValue().isNull()) {
                session.conf().unset(change.getKey());
            } else {
                session.conf().set(change.getKey(), change.getValue().asText());
            }
        }
    }

    /** Returns the rows of files at *path*; *options* and *schema* are JSON, and without *schema* (null) it is found. */
    public static Dataset<Row> read(SparkSession session, String format, String options, String schema, String path) {
        var reader = session.read().format(format);
        Json.tree(options).properties().forEach(each -> reader.option(each.getKey(), each.getValue().asText()));
        return (schema == null ? reader : reader.schema((StructType) DataType.fromJson(schema))).load(path);
    }
}
