#!/usr/bin/env bash
# Write a dataset whose directories are the values of columns, as in Hive, and read one of them.
#
# Run it: examples/partition_by.sh
set -euo pipefail

onager submit --name "days" --mode overwrite --output "$PWD/days" --partition-by day \
    -e "SELECT id, if(id < 3, 'mon', 'tue') AS day FROM range(5)"

# Of each day there is a directory.
ls days | grep day=

# Spark reads only the directory that the query needs.
onager submit -o csv --view days="$PWD/days" -e "SELECT day, count(*) AS n FROM days WHERE day = 'tue' GROUP BY day"
