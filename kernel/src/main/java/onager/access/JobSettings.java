package onager.access;

import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * Which settings and options jobs may give. All of them reach Hadoop's settings, too, where libraries look for classes to load, objects to
 * deserialise and file systems to use. So what has a dot in its name passes only if it is listed here.
 */
public final class JobSettings {
    private static final String OPERATORS = "it is a setting of executors: onager executor --spark-conf ";
    private static final String SUBSTITUTED = "${";
    /** What reads and writes files, and takes numbers, booleans and names of its own, but no class. */
    private static final Set<String> OF_FORMATS = Set.of("""
            avro.mapred.ignore.inputs.without.extension
            mapreduce.fileoutputcommitter.algorithm.version mapreduce.fileoutputcommitter.marksuccessfuljobs
            mapreduce.input.fileinputformat.input.dir.recursive mapreduce.input.fileinputformat.list-status.num-threads
            mapreduce.input.fileinputformat.split.maxsize mapreduce.input.fileinputformat.split.minsize
            mapreduce.input.linerecordreader.line.maxlength
            orc.block.padding orc.block.padding.tolerance orc.block.size orc.bloom.filter.columns orc.bloom.filter.fpp
            orc.bloom.filter.ignore.non-utf8 orc.bloom.filter.write.version orc.buffer.size.enforce orc.column.encoding.direct orc.compress
            orc.compress.size orc.compression.strategy orc.compression.zstd.level orc.compression.zstd.strategy
            orc.compression.zstd.windowlog orc.create.index orc.default.bloom.fpp orc.dictionary.early.check orc.dictionary.implementation
            orc.dictionary.key.threshold orc.dictionary.max.size.bytes orc.encoding.strategy orc.filter.use.selected
            orc.force.positional.evolution orc.force.positional.evolution.level orc.max.disk.range.chunk.limit orc.memory.pool
            orc.min.disk.seek.size orc.min.disk.seek.size.tolerance orc.proleptic.gregorian orc.proleptic.gregorian.default
            orc.row.batch.size orc.row.child.limit orc.row.index.stride orc.rows.between.memory.checks orc.sarg.to.filter
            orc.schema.evolution.case.sensitive orc.skip.corrupt.data orc.stripe.row.count orc.stripe.size orc.stripe.size.check.ratio
            orc.tolerate.missing.schema orc.use.zerocopy orc.write.format orc.write.variable.length.blocks
            parquet.block.row.count.limit parquet.block.size parquet.bloom.filter.adaptive.enabled parquet.bloom.filter.candidates.number
            parquet.bloom.filter.enabled parquet.bloom.filter.expected.ndv parquet.bloom.filter.fpp parquet.bloom.filter.max.bytes
            parquet.column.statistics.enabled parquet.columnindex.truncate.length parquet.compression
            parquet.compression.codec.zstd.bufferpool.enabled parquet.compression.codec.zstd.level parquet.compression.codec.zstd.workers
            parquet.dictionary.page.size parquet.enable.bytestreamsplit parquet.enable.dictionary parquet.enable.summary-metadata
            parquet.filter.bloom.enabled parquet.filter.columnindex.enabled parquet.filter.dictionary.enabled
            parquet.filter.record-level.enabled parquet.filter.stats.enabled parquet.hadoop.vectored.io.enabled
            parquet.memory.min.chunk.size parquet.memory.pool.ratio parquet.metadata.read.parallelism parquet.page.row.count.limit
            parquet.page.size parquet.page.size.check.estimate parquet.page.size.row.check.max parquet.page.size.row.check.min
            parquet.page.value.count.threshold parquet.page.verify-checksum.enabled parquet.page.write-checksum.enabled
            parquet.read.allocation.size parquet.size.statistics.enabled parquet.split.files parquet.statistics.truncate.length
            parquet.strict.typing parquet.summary.metadata.level parquet.task.side.metadata parquet.validation parquet.writer.max-padding
            parquet.writer.version
            textinputformat.record.delimiter
            """.strip().split("\\s+"));
    /** What scripts of Hive set, and Spark takes for settings of its own or ignores. */
    private static final Set<String> OF_HIVE = Set.of("hive.exec.dynamic.partition", "hive.exec.dynamic.partition.mode",
            "hive.exec.max.dynamic.partitions", "hive.exec.max.dynamic.partitions.pernode", "mapred.reduce.tasks", "mapreduce.job.reduces");
    /** How names of settings begin that Spark would use; a script that means one shall learn if it cannot have it. */
    private static final Set<String> OTHERS = Set.of("spark", "onager", "avro", "dfs", "file", "fs", "ftp", "hadoop", "io", "ipc", "net", "orc",
            "parquet", "s3", "security", "serialization", "textinputformat");
    /** Of tables that Hive has made. */
    private static final String SERIALIZATION = "serialization.format";
    private static final Pattern OF_CLASSES = Pattern.compile(
            ".*(class|classes|classname|provider|providers|impl|factory|codecs|serializations|loader|signers|interceptors|binding|plugin)");
    /** Between the names in a value. */
    private static final Pattern BETWEEN = Pattern.compile("[\\s,;:=]+");
    private static final Pattern WORD = Pattern.compile("[A-Za-z_$][\\w$]*+");

    private static final Set<String> CODECS = Set.of("compression", "codec");
    private static final Set<String> OF_CODECS = Set.of("orc.compress", "parquet.compression");
    private static final String NO_CLASS = "it takes the short name of a codec, such as gzip, and not ";
    private static final int MAX_PLAIN = 32;
    private static final Pattern SHORT_NAME = Pattern.compile("[A-Za-z0-9_-]*");

    private JobSettings() {}

    /** Whether *value* is so short and plain that it can neither name a class nor hold an object, whatever it is given for. */
    public static boolean isPlain(String value) {
        return value.length() <= MAX_PLAIN && SHORT_NAME.matcher(value).matches();
    }

    /** Return why no job may set *key* to *value*; null: it may, if Spark lets it. */
    public static String refusal(String key, String value) {
        String ofValue = ofValue(value);
        if (ofValue != null) {
            return ofValue;
        }
        String name = key.toLowerCase(Locale.ROOT);
        if (name.startsWith("spark.hadoop.")) {
            return ofHadoop(key.substring("spark.hadoop.".length()), value);
        }
        if (name.startsWith("spark.")) {
            return SessionSettings.refusal(key, value);
        }
        if (name.startsWith("onager.") || OF_HIVE.contains(name) || isVariable(key)) {
            return null;
        }
        return ofHadoop(key, value);
    }

    /** Return why no setting may have *value*; null: it may. */
    public static String ofValue(String value) {
        return value != null && value.contains(SUBSTITUTED) ? "${…} in its value would be taken from the environment or the settings of an executor"
                : null;
    }

    /** Whether *key* is a variable of a program's or a script's own, as it is a name of nothing that Spark would use. */
    public static boolean isVariable(String key) {
        String name = key.toLowerCase(Locale.ROOT);
        int dot = name.indexOf('.');
        return dot >= 0 && !OTHERS.contains(name.substring(0, dot)) && !OF_HIVE.contains(name) && !OF_FORMATS.contains(name);
    }

    /** Return why no job may give *key* as an option of files, or as a setting of Hadoop; null: it may. */
    static String ofHadoop(String key, String value) {
        String name = key.toLowerCase(Locale.ROOT);
        if (OF_CODECS.contains(name) && value != null && !SHORT_NAME.matcher(value).matches()) {
            return NO_CLASS + value;
        }
        if (!name.contains(".") || name.equals(SERIALIZATION)) {
            return null; // an option of a format, or a variable of a script
        }
        String ofValue = ofValue(value);
        if (ofValue != null) {
            return ofValue;
        }
        int column = name.indexOf('#');
        if (OF_FORMATS.contains(column > 0 && name.startsWith("parquet.") ? name.substring(0, column) : name)) {
            return null;
        }
        String[] parts = name.split("\\.", 3);
        boolean isOfFiles = parts.length == 3 && parts[0].equals("fs") && !parts[1].equals("file") && !namesClass(name, value);
        if (isOfFiles && Access.get().allows(parts[1] + ":")) {
            return null;
        }
        return OPERATORS + "spark.hadoop." + key + "=…" + (isOfFiles ? ", or " + Access.flag(parts[1] + ":") : "");
    }

    private static boolean namesClass(String name, String value) {
        return List.of(name.split("\\.")).stream().anyMatch(part -> OF_CLASSES.matcher(part).matches())
                || (value != null && BETWEEN.splitAsStream(value).anyMatch(JobSettings::isClass));
    }

    /** Whether *text* looks like a class in a package: of what an object store takes, nothing else does. */
    private static boolean isClass(String text) {
        List<String> words = List.of(text.split("\\.", -1));
        return words.stream().allMatch(word -> WORD.matcher(word).matches()) && Character.isLowerCase(words.get(0).charAt(0))
                && words.stream().anyMatch(word -> Character.isUpperCase(word.charAt(0)));
    }

    /** Return why nobody may give the option *key* for files; null: one may. */
    public static String ofOption(String key, String value) {
        if (CODECS.contains(key.toLowerCase(Locale.ROOT).replaceFirst("^option\\.", "")) && !SHORT_NAME.matcher(value).matches()) {
            return NO_CLASS + value;
        }
        return ofHadoop(key.toLowerCase(Locale.ROOT).startsWith("option.") ? key.substring("option.".length()) : key, value);
    }
}
