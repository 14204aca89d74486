#!/bin/sh
# Prints the path of the properties file with Spark's secrets (SPARK_SECRETS). Fails if it lacks one of the properties that are named:
# without them, every user who reaches Spark's ports runs code there.
set -eu
file=${SPARK_SECRETS:-/etc/clusterlink/spark-secrets.conf}
for name in "$@"; do
  if ! grep -Eq "^$name[ =]+[^ ]" "$file"; then
    echo "$name is not set in $file. Write a line '$name VALUE' there; docs/operations/install.md says how to make one." >&2
    exit 1
  fi
done
echo "$file"
