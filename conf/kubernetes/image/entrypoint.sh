#!/bin/bash
# What Spark on Kubernetes asks of an image: `driver ARGUMENT ...` starts spark-submit in client mode, `executor` an
# executor from the environment that its driver gave it. Anything else is run as it is, such as `sparklog maintain`.
#
# tini is the first process: it passes SIGTERM on and reaps orphans.
set -euo pipefail

classpath="${SPARK_HOME}/conf:${SPARK_CLASSPATH:-}:${SPARK_HOME}/jars/*"
if [ -n "${HADOOP_CONF_DIR:-}" ]; then classpath="${HADOOP_CONF_DIR}:${classpath}"; fi

case "${1:-}" in
driver)
    shift
    exec /usr/bin/tini -s -- "${SPARK_HOME}/bin/spark-submit" \
        --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS}" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=${SPARK_DRIVER_BIND_ADDRESS}" \
        --deploy-mode client "$@"
    ;;
executor)
    options=()
    while IFS='=' read -r _ value; do options+=("$value"); done < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n)
    exec /usr/bin/tini -s -- "${JAVA_HOME}/bin/java" "${options[@]}" \
        "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
        -cp "${SPARK_EXTRA_CLASSPATH:-}:${classpath}:${SPARK_HOME}/work-dir" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "${SPARK_DRIVER_URL}" \
        --executor-id "${SPARK_EXECUTOR_ID}" \
        --cores "${SPARK_EXECUTOR_CORES}" \
        --app-id "${SPARK_APPLICATION_ID}" \
        --hostname "${SPARK_EXECUTOR_POD_IP}" \
        --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID}" \
        --podName "${SPARK_EXECUTOR_POD_NAME}"
    ;;
*)
    exec /usr/bin/tini -s -- "$@"
    ;;
esac
