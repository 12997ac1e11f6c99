package onager.access;

import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.internal.config.ConfigEntry;
import org.apache.spark.internal.config.ConfigEntry$;
import org.apache.spark.sql.internal.SQLConf$;

/**
 * Which of Spark's own settings a job may set. Each was reviewed; what a newer Spark brings in a group of its own is the operator's until it
 * is listed here, and a test fails for what it brings in a group that is.
 */
final class SessionSettings {
    /** The third part of the names of settings that jobs may set, `spark.sql.GROUP…`. */
    private static final Set<String> GROUPS = words("""
            adaptive addPartitionInBatch allowNamedFunctionArguments alwaysInlineCommonExpr analyzer ansi artifact
            assumeAnsiFalseIfNotPersisted autoBroadcastJoinThreshold avro binByRelationOperator binaryOutputStyle broadcastTimeout
            bucketing cartesianProductExec caseSensitive cbo charAsVarchar chunkBase64String classic codegen collation
            columnNameOfCorruptRecord columnVector connect constraintPropagation crossJoin csv cteRecursionAnchorRowsLimitToConvertToLocalRelation
            cteRecursionLevelLimit cteRecursionRowLimit cteRelationDefMaxRows dataFrameQueryContext dataSource dataframeCache datetime debug
            decimalOperations defaultCacheStorageLevel defaultCatalog defaultColumn defaultPath defaultSizeInBytes dropDuplicates
            dropTableOnView enforceTypeCoercionBeforeUnionDeduplication error exchange execution expressionTreeChangeLog fileSource files
            function functionResolution generatedColumn geospatial groupByAliases groupByOrdinal hive icu inMemoryColumnarStorage
            inMemoryTableScanStatistics insertIntoReplaceOn insertIntoReplaceOnByName insertIntoReplaceUsing insertIntoReplaceUsingByName
            insertIntoReplaceWhereColumnList insertNestedTypeCoercion join json jsonGenerator lateralColumnAlias lazySetOperatorOutput
            leafNodeDefaultParallelism legacy lightweightPlanChangeValidation limit listagg mapKeyDedupPolicy mapZipWithUsesJavaCollections
            maxBroadcastTableSize maxConcurrentOutputFileWriters maxMetadataStringLength maxPlanStringLength maxSinglePartitionBytes
            mergeNestedTypeCoercion nameResolutionLog objectHashAggregate operatorPipeSyntaxEnabled optimizeNullAwareAntiJoin optimizer orc
            orderByOrdinal orderingAwareLimitOffset parquet parser path pivotMaxValues planChangeLog planChangeValidation planner
            preserveCharVarcharTypeInfo prioritizeOrdinalResolutionInSort protobuf pyspark python readSideCharPadding repl
            requireAllClusterKeysForCoPartition requireAllClusterKeysForDistribution retainGroupColumns
            runCollationTypeCastsBeforeAliasAssignment runSQLOnFiles scriptTransformation scripting selfJoinAutoResolveAmbiguity session
            sessionWindow shuffle shuffleDependency shuffledHashJoinFactor sort sortMergeJoinExec sources stableDerivedColumnAlias
            stackTracesInDataFrameContext statistics storeAssignmentPolicy streaming subexpressionElimination timeTravel
            timeTravelTimestampKey timeTravelVersionKey timeType timestampNanosTypes timestampType transposeMaxValues truncateTable tvf ui
            unionOutputPartitioning useCommonExprIdForAlias variable variant view window windowExec xml
            """);
    /** Beginnings of names in these groups that would load classes, start programs, switch the guard off, or show secrets. */
    private static final List<String> OPERATORS = List.of(
            "spark.sql.adaptive.customcostevaluatorclass", "spark.sql.analyzer.singlepassresolver.", "spark.sql.execution.pyspark.python",
            "spark.sql.execution.udf.unified.", "spark.sql.legacy.notreserveproperties", "spark.sql.legacy.setcommandrejectssparkcoreconfs",
            "spark.sql.parquet.output.committer.class", "spark.sql.sources.commitprotocolclass", "spark.sql.sources.outputcommitterclass",
            "spark.sql.streaming.checkpointlocation", "spark.sql.streaming.commitprotocolclass",
            "spark.sql.streaming.statestore.providerclass");
    /** Names that are registered late: with the classes of Hive or of Spark Connect, or never. */
    private static final List<String> OTHERS = List.of("spark.connect.progress.", "spark.connect.session.planC", "spark.connect.session.result",
            "spark.sql.hive.convert", "spark.sql.iceberg.");
    private static final List<String> OURS = List.of("spark.onager.", "spark.sql.catalog.");
    private static final String DEFAULT_FORMAT = "spark.sql.sources.default";
    private static final String GIVEN_TO_EXECUTORS = "it is a setting of executors, give it to the executors: onager executor --spark-conf ";

    private SessionSettings() {}

    private static Set<String> words(String text) {
        return Set.of(text.strip().split("\\s+"));
    }

    /** Return why no job may set *key*, which begins with `spark.`, to *value*; null: it may, if Spark lets it. */
    static String refusal(String key, String value) {
        String name = key.toLowerCase(Locale.ROOT);
        if (OTHERS.stream().anyMatch(key::startsWith)) {
            return null;
        }
        if (OURS.stream().anyMatch(name::startsWith)) {
            return GIVEN_TO_EXECUTORS + key + "=…";
        }
        String main = SQLConf$.MODULE$.containsConfigKey(key) ? key : main(key);
        if (main != null) {
            if (SQLConf$.MODULE$.isStaticConfigKey(main)) {
                return null; // Spark says that it is fixed
            }
            return isReviewed(main) ? ofValue(main, value) : GIVEN_TO_EXECUTORS + key + "=…";
        }
        if (name.startsWith("spark.sql.") || name.startsWith("spark.connect.")) {
            return "Spark has no such setting";
        }
        return ConfigEntry$.MODULE$.findEntry(key) == null ? null : GIVEN_TO_EXECUTORS + key + "=…";
    }

    /** Return the name of the setting that may also be named *key*, or null. */
    private static String main(String key) {
        for (ConfigEntry<?> entry : SQLConf$.MODULE$.getConfigEntries()) {
            if (entry.alternatives().contains(key)) {
                return entry.key();
            }
        }
        return null;
    }

    private static boolean isReviewed(String key) {
        String name = key.toLowerCase(Locale.ROOT);
        String[] parts = key.split("\\.", 4);
        return parts.length > 2 && parts[1].equals("sql") && GROUPS.contains(parts[2]) && OPERATORS.stream().noneMatch(name::startsWith);
    }

    private static String ofValue(String key, String value) {
        boolean isFormat = !key.equals(DEFAULT_FORMAT) || value == null || Access.FORMATS.stream().anyMatch(value::equalsIgnoreCase)
                || Access.get().allows(value);
        return isFormat ? null : "the data source " + value + " is not among those that jobs may use (" + String.join(", ", Access.FORMATS) + "); "
                + Access.flag(value);
    }
}
