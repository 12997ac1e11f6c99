#!/usr/bin/env bash
# Look into the state store through a running scheduler, check it, and back it up.
#
# Run it: examples/admin.sh
set -euo pipefail

onager submit --name "for the store" -e "SELECT 1 AS one"

# The short record of each job.
onager state ls JobHeads

# Ends with 1 if there is damage.
onager state check

rm -f state.backup
onager state backup state.backup
ls state.backup
