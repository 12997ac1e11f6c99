package onager.spark43;

import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapred.JobConf;

/**
 * Hadoop's settings, of which those that decide about file systems stay as they are: in every copy, whatever it is given. So nothing that
 * a session or an option says can put another file system in place of a guarded one.
 */
public final class FixedProperties extends Properties {
    private static final long serialVersionUID = 1L;

    private FixedProperties(Properties from) {
        from.forEach(super::put);
    }

    /**
     * Fix the settings of *conf*, whose file systems have been opened, and of all copies that are made of it from now on; throws an
     * IllegalStateException if they cannot be.
     */
    public static void in(Configuration conf) throws IllegalAccessException {
        new JobConf(conf); // has all settings read anew when it is loaded, as some file systems do
        conf.get("fs.file.impl"); // they are read when they are first asked for
        for (String name : List.of("properties", "overlay")) {
            var field = Fields.of(Configuration.class, name);
            Properties found = (Properties) field.get(conf);
            field.set(conf, new FixedProperties(found == null ? new Properties() : found));
        }
        Configuration copy = new Configuration(conf);
        copy.set("fs.file.impl", "replaced");
        if (copy.get("fs.file.impl").equals("replaced")) {
            throw new IllegalStateException("the settings of Hadoop's file systems can be replaced here");
        }
    }

    private static boolean isFixed(Object key) {
        if (!(key instanceof String text) || !text.regionMatches(true, 0, "fs.", 0, 3)) {
            return false;
        }
        String name = text.toLowerCase(Locale.ROOT);
        return name.startsWith("fs.file.") || name.startsWith("fs.abstractfilesystem.") || name.equals("fs.defaultfs") || name.equals("fs.default.name")
                || name.endsWith(".impl") || name.contains(".impl.");
    }

    @Override
    public Object setProperty(String key, String value) {
        return isFixed(key) ? getProperty(key) : super.setProperty(key, value);
    }

    @Override
    public Object put(Object key, Object value) {
        return isFixed(key) ? get(key) : super.put(key, value);
    }

    @Override
    public Object remove(Object key) {
        return isFixed(key) ? get(key) : super.remove(key);
    }
}
