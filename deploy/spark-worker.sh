#!/bin/sh
# Starts a worker of a Spark standalone cluster. Spark writes the logs of executors to files; they are copied to the worker's own output.
# Spark reads SPARK_WORKER_CORES and SPARK_WORKER_MEMORY (for the heaps of executors) itself.
set -eu
home=$(cd "$(dirname "$0")/.." && pwd)
work=${SPARK_WORK_DIR:-/tmp/spark-work}
mkdir -p "$work"
export PYTHONPATH="$home" SPARK_CONF_DIR="${SPARK_CONF_DIR:-$home/deploy/spark}" PYSPARK_PYTHON="${PYSPARK_PYTHON:-python3}"
export SPARK_WORKER_OPTS="-Dspark.worker.cleanup.enabled=true -Dspark.worker.cleanup.appDataTtl=86400 ${SPARK_WORKER_OPTS:-}"
python3 "$home/deploy/executor_logs.py" "$work" &
secrets=$("$home/deploy/spark-secrets.sh" spark.authenticate.secret)
exec spark-class org.apache.spark.deploy.worker.Worker --properties-file "$secrets" --work-dir "$work" "${SPARK_MASTER_URL:-spark://spark-master:7077}"
