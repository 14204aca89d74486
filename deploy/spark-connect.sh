#!/bin/sh
# Starts the Spark Connect server that runs the copy and verify jobs. Without SPARK_MASTER_URL its own JVM runs the tasks.
# SPARK_CONNECT_OPTIONS holds further options of spark-submit, separated by spaces.
set -eu
home=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$home" SPARK_CONF_DIR="${SPARK_CONF_DIR:-$home/deploy/spark}" PYSPARK_PYTHON="${PYSPARK_PYTHON:-python3}"
# spark-submit gives the Connect server the heap that SPARK_DAEMON_MEMORY names, if it is set, whatever --driver-memory says
export SPARK_DAEMON_MEMORY="${SPARK_DRIVER_MEMORY:-1g}"
jars="$home/var/parts/spark/*"
secrets=$("$home/deploy/spark-secrets.sh" spark.authenticate.secret spark.connect.authenticate.token)
# shellcheck disable=SC2086 # the options are words
exec spark-submit --load-spark-defaults --properties-file "$secrets" \
  --master "${SPARK_MASTER_URL:-local[${SPARK_WORKER_CORES:-16},8]}" \
  --class org.apache.spark.sql.connect.service.SparkConnectServer \
  --driver-memory "$SPARK_DAEMON_MEMORY" \
  --driver-class-path "$jars" \
  --conf "spark.executor.extraClassPath=$jars" \
  --conf "spark.executor.memory=${SPARK_EXECUTOR_MEMORY:-1g}" \
  --conf "spark.executorEnv.PYTHONPATH=$home" \
  --conf "spark.connect.grpc.binding.address=${SPARK_CONNECT_ADDRESS:-127.0.0.1}" \
  --conf "spark.connect.grpc.binding.port=${SPARK_CONNECT_PORT:-15002}" \
  --conf "spark.log.level=${SPARK_LOG_LEVEL:-WARN}" \
  ${SPARK_CONNECT_OPTIONS:-} \
  spark-internal
