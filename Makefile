# Everything a developer runs. The environment lives in .venv in this checkout. Nothing is installed elsewhere, except
# Java (scripts/java.sh) and the venv module (scripts/setup.sh) for root on a Debian-like system that has none.

PY := .venv/bin/python
STAMP := .venv/.setup-done
JVM_ARCHIVE := .venv/spark.jsa
# Recipes that start Spark put this first: a Java 17 or newer, found or installed by the script.
WITH_JAVA := JAVA_HOME="$$(bash scripts/java.sh)" && export JAVA_HOME &&
# Images of containers set this. Without kept bytecode every process compiles the package again, and each of pytest's
# processes all tests. The folders __pycache__ are ignored by git; make clean removes them.
unexport PYTHONDONTWRITEBYTECODE
TESTS ?=
PYTEST_ARGS ?=
COVERED := tests/unit tests/cluster
SPARK_SMOKE := $(addprefix tests/integration/test_,spark_batch.py spark_groups.py spark_connect.py spark_typed_write.py stream_queries.py)
# In namespaces of its own, in which a Kubernetes node can be started.
ISOLATED = $(PY) -m tests.deployment.isolated $(PY)
# That the lowest versions import and work is shown by a few modules for every floor of the package, among them one at
# least for each library; what the package does with them is tested with the pinned versions.
LOWEST := $(addprefix tests/unit/,config/test_effects.py format/test_plain_arrays.py format/test_typed_encodings.py \
	format/test_golden.py protocol/test_placement.py protocol/test_partitioner.py schema/test_avro_values.py records/test_json_values.py \
	delta/test_table_files.py store/test_remote.py store/test_open.py monitoring/test_exporter_samples.py \
	spark/test_portable.py spark/test_functions.py) \
	$(addprefix tests/cluster/,log/test_one_fold.py log/test_history_segments.py coordinator/test_record_reader.py \
	client/test_cluster.py client/test_consume_and_produce.py client/test_plot.py spark/test_many_tasks.py \
	spark/test_stream_writer.py maintenance/test_reassign.py maintenance/test_table_properties.py cli/test_top.py \
	ui/test_maintenance_pass.py) tests/simulation/test_reproducible_seeds.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-python test-spark test-all test-crash test-programs test-s3 test-hdfs test-standalone test-yarn test-k8s measure-pods test-airflow test-killed-copy test-gcs test-azure test-thirdparty test-ui test-go test-faults test-slow test-stress test-exactly-once test-simulation test-soak test-differential test-kafka-python test-lowest coverage lint format types imports check bench bench-kafka bench-clusters dist dist-env release-check notebook notebook-outputs clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

setup: $(STAMP) ## create .venv and install the pinned packages (again when the pins change)

demo: $(STAMP) ## produce 336,776 flights into a topic with one Spark job and read them with another
	@$(WITH_JAVA) $(PY) scripts/demo.py

test: $(STAMP) ## all tests but test-crash, test-programs, the slow ones and those that need a server; TESTS=path runs only these
ifeq ($(TESTS),)
	@$(MAKE) --no-print-directory test-python
	@$(MAKE) --no-print-directory test-spark
else
	@$(WITH_JAVA) $(PY) -m pytest $(PYTEST_ARGS) $(TESTS)
endif

# More processes than two cores: some of the time a test waits, for a timeout or for a program that it started. One test
# at a time to each process, the longest kinds first (tests/conftest.py): no process is left with a long one.
test-python: $(STAMP) ## those of make test that start no Spark
	@$(WITH_JAVA) $(PY) -m pytest -n 6 --dist load --maxschedchunk 1 $(PYTEST_ARGS) tests --ignore=tests/integration --ignore=tests/crash --ignore=tests/simulation

# SPARK=4.3.0 runs them with this version of Spark, from an environment of its own; scripts/spark_env.sh says what else
# can be chosen: PYTHON, PANDAS, PYARROW, NUMPY; JAVA_HOME chooses the Java. Without a network there is none.
# Those of test-stress are part of it then. SMOKE=1 runs a part of some three minutes: batches, streams, groups, tables and
# Spark Connect.
test-spark: $(STAMP) $(JVM_ARCHIVE) ## those of make test that start Spark (SPARK=4.3.0 with this version, TESTS=path a part)
ifeq ($(SPARK),)
	@$(WITH_JAVA) $(PY) -m pytest -n 3 --dist worksteal $(PYTEST_ARGS) $(or $(TESTS),$(if $(SMOKE),$(SPARK_SMOKE)),tests/integration)
else
	@bash scripts/spark_tests.sh $(SPARK) -n $(or $(JOBS),3) --dist worksteal -m "not slow and not s3" $(PYTEST_ARGS) $(or $(TESTS),$(if $(SMOKE),$(SPARK_SMOKE)),tests/integration)
endif

# Without it the tests are slower, nothing else.
$(JVM_ARCHIVE): $(STAMP) scripts/jvm_archive.sh
	-@$(WITH_JAVA) bash scripts/jvm_archive.sh

# tests/suites.toml says what each of them is for; scripts/suites.py runs one of them, or what is due.
test-all: $(STAMP) ## every suite that this machine can run, some two hours (scripts/suites.py list)
	@$(PY) scripts/suites.py run --tier always --tier touched --tier nightly

test-crash: $(STAMP) ## a fault at a fifth of all steps of all that is done to a storage, and simulated runs (test-faults: at every step)
	@$(PY) -m pytest -n 4 --dist load --maxschedchunk 1 $(PYTEST_ARGS) tests/crash tests/simulation

test-programs: $(STAMP) $(JVM_ARCHIVE) ## programs that start a Spark of their own: spark-submit, the notebooks, executors, an older version
	@$(WITH_JAVA) $(PY) -m pytest -n 3 --dist worksteal -m programs $(PYTEST_ARGS) $(or $(TESTS),tests/integration)

test-s3: $(STAMP) ## the tests that need a real S3 server, which they start (Go builds it once)
	@$(WITH_JAVA) $(PY) -m pytest -m s3 $(PYTEST_ARGS) tests

test-hdfs: $(STAMP) ## the tests that need a NameNode and DataNodes, which they start (Maven fetches them once)
	-@bash scripts/kerberos.sh
	@$(WITH_JAVA) $(PY) -m pytest -m hdfs $(PYTEST_ARGS) tests

test-gcs: $(STAMP) ## the tests that need Google Cloud Storage, with an emulator, which they start (Go builds it once)
	-@$(PY) -c 'import gcsfs' 2>/dev/null || bash scripts/setup.sh dev,gcs,azure
	@$(PY) -m pytest -m gcs $(PYTEST_ARGS) tests/stores tests/machine

test-azure: $(STAMP) ## the tests that need Azure, with an emulator, which they start (npm installs it once)
	-@$(PY) -c 'import adlfs' 2>/dev/null || bash scripts/setup.sh dev,gcs,azure
	@$(PY) -m pytest -m azure $(PYTEST_ARGS) tests/stores tests/machine

test-standalone: $(STAMP) $(JVM_ARCHIVE) ## the jobs on a Spark standalone cluster, which it starts
	@$(WITH_JAVA) $(PY) -m pytest -m standalone $(PYTEST_ARGS) tests/deployment tests/machine

test-yarn: $(STAMP) $(JVM_ARCHIVE) ## the jobs on a YARN with its HDFS, which it starts (Maven fetches them once)
	@$(WITH_JAVA) $(PY) -m pytest -m yarn $(PYTEST_ARGS) tests/deployment tests/machine

# The second line looks at the machine from outside.
test-k8s: $(STAMP) $(JVM_ARCHIVE) ## the jobs, the image and the chart on a Kubernetes of one node, which it starts (as root; Go builds it once)
	@$(WITH_JAVA) $(ISOLATED) -m pytest -m k8s $(PYTEST_ARGS) tests/deployment
	$(if $(PYTEST_ARGS),,@$(PY) -m pytest -m k8s tests/machine)

measure-pods: $(STAMP) ## what the pods of the chart and of a Spark job use on a Kubernetes of one node, which it starts (as root)
	@$(WITH_JAVA) $(ISOLATED) -m tests.deployment.usage

test-airflow: $(STAMP) ## the example DAG, run by Airflow (installs it once, into .venv-airflow)
	-@bash scripts/airflow.sh
	@$(WITH_JAVA) $(PY) -m pytest -m airflow $(PYTEST_ARGS) tests/airflow

test-killed-copy: $(STAMP) $(JVM_ARCHIVE) ## kill each kind of process of a stream copy KILLS times (20) on CLUSTER (yarn), and compare; STORAGE=hdfs, SEED=n
	@$(WITH_JAVA) $(if $(filter k8s,$(CLUSTER)),$(ISOLATED),$(PY)) -m tests.deployment.kills $(or $(CLUSTER),yarn) --kills $(or $(KILLS),20) $(if $(STORAGE),--storage $(STORAGE)) $(if $(SEED),--seed $(SEED))

# Without a network there is no such environment, and the tests say that they are skipped.
test-thirdparty: $(STAMP) ## programs written for kafka-python, run as they are (installs them once, into .venv-thirdparty)
	-@bash scripts/thirdparty.sh
	@$(PY) -m pytest -m thirdparty $(PYTEST_ARGS) tests/thirdparty

# Without Chromium, or the packages that drive it, the tests say why they are skipped.
test-ui: $(STAMP) ## every page of `sparklog ui` in a real Chromium, which it installs where apt is there (SCREENSHOTS=1 takes the pictures)
	-@$(PY) -c 'import playwright, axe_playwright_python' 2>/dev/null || bash scripts/setup.sh dev,browser
	@CHROMIUM="$$(bash scripts/chromium.sh || true)" $(if $(SCREENSHOTS),SPARKLOG_SCREENSHOTS=$(SCREENSHOTS)) $(PY) -m pytest -m ui $(PYTEST_ARGS) tests/browser tests/machine

test-go: $(STAMP) ## the metrics and alert rules, read by Prometheus' own parsers (needs Go, which fetches and builds them once)
	@$(PY) -m pytest -m go $(PYTEST_ARGS) tests/cluster/cli/test_metrics.py

test-slow: $(STAMP) ## the tests that take minutes
	@$(WITH_JAVA) $(PY) -m pytest -m slow $(PYTEST_ARGS) tests

test-exactly-once: $(STAMP) ## kill a copy query 50 times and compare (25 minutes on a busy machine; SPARKLOG_TEST_SEED=n)
	@$(WITH_JAVA) $(PY) -m pytest -m slow $(PYTEST_ARGS) tests/integration/test_stream_exactly_once.py

test-faults: $(STAMP) ## every outcome that a storage's client can show, at every step of all that is done to one; says how many points (TESTS=path: these)
	@SPARKLOG_EVERY_FAULT=1 $(PY) -m pytest -n 2 --dist worksteal -m "faults or sampled" $(PYTEST_ARGS) $(or $(TESTS),tests)

test-simulation: $(STAMP) ## simulate SEEDS runs of groups, transactions and maintenance (2000), some minutes; a failure prints its seed
	@SPARKLOG_SEEDS=$(or $(SEEDS),2000) $(PY) -m pytest -n 2 $(PYTEST_ARGS) tests/simulation

test-stress: $(STAMP) $(JVM_ARCHIVE) ## real processes, also of Spark, that race for a fixed time, or are killed or stopped (five minutes)
	@$(WITH_JAVA) $(PY) -m pytest -m stress $(PYTEST_ARGS) tests/soak tests/crash tests/integration

test-soak: $(STAMP) ## disturb thirteen processes on a failing storage for half an hour, and check their history
	@$(PY) -m pytest -m soak $(PYTEST_ARGS) tests/soak

test-differential: $(STAMP) ## ask a Kafka broker, which it starts, what tests/differential asks, and compare (RECORD=1 keeps its answers)
	@$(WITH_JAVA) $(PY) -m tests.differential.record $(if $(RECORD),--write)
	@$(PY) -m pytest -n 2 $(PYTEST_ARGS) tests/differential
	$(if $(PYTEST_ARGS),,@$(WITH_JAVA) $(PY) -m pytest -m kafka tests/machine)

test-kafka-python: $(STAMP) ## run kafka-python's own tests, fetched once, against sparklog.kafka
	@$(PY) scripts/kafka_python_tests.py

# The versions come from the network.
test-lowest: $(STAMP) ## a few tests of every floor with the lowest versions that pyproject.toml allows (installs them once, into .venv-lowest)
	@bash scripts/lowest.sh
	@.venv-lowest/bin/python -m pytest -n 2 $(PYTEST_ARGS) $(or $(TESTS),$(LOWEST))

coverage: $(STAMP) ## the tests of tests/unit and tests/cluster; fails where they cover less of the package than before
	@$(PY) -m pytest -n 4 --dist worksteal --cov --cov-report= $(PYTEST_ARGS) $(COVERED)
	@$(PY) scripts/coverage_floors.py

lint: $(STAMP) ## ruff: rules and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

format: $(STAMP) ## let ruff format what you changed (FILES=..., default everything)
	@$(PY) -m ruff format $(or $(FILES),.)

types: $(STAMP) ## mypy, strict, on the package and on tests, jobs, scripts and benchmarks
	@$(PY) -m mypy

imports: $(STAMP) ## imports only go down: the floors of the package
	@.venv/bin/lint-imports --no-logo

check: $(STAMP) ## rules of the project itself: sizes, leftovers, run bits, shell syntax
	@$(PY) scripts/check_project.py

bench: $(STAMP) ## measure against references in the same run; prints a table and JSON
	@$(WITH_JAVA) $(PY) benchmarks/run.py

bench-kafka: $(STAMP) ## measure the Python clients against a Kafka broker, which it starts (Maven fetches it once)
	@$(WITH_JAVA) $(PY) benchmarks/kafka_peer.py

dist: ## build the wheel, the source archive and the zip for spark-submit --py-files into dist/; needs no .venv
	@bash scripts/dist.sh

# Whatever needs a network or a builder of images is skipped without it, with its reason.
release-check: $(STAMP) ## what has to hold before a release (docs/releasing.md): versions, reproducible builds, licences, clean installs
	@$(PY) scripts/release_check.py

bench-clusters: $(STAMP) $(JVM_ARCHIVE) ## what cluster managers cost, beside local[2] and Parquet (CLUSTERS="standalone yarn:hdfs yarn:s3", QUICK=1)
	@$(WITH_JAVA) $(if $(filter k8s%,$(CLUSTERS)),$(ISOLATED),$(PY)) benchmarks/managers.py $(CLUSTERS) $(if $(QUICK),--quick)

dist-env: dist ## build dist/env.tar.gz too: sparklog and what it needs, for executors that have only Python (EXTRAS=performance,s3,hdfs)
	@$(or $(wildcard $(PY)),python3) scripts/pack_environment.py $(if $(EXTRAS),--extras $(EXTRAS))

notebook: $(STAMP) ## open the notebooks in JupyterLab
	@$(PY) -c 'import jupyterlab, ipywidgets' 2>/dev/null || bash scripts/setup.sh dev,notebooks
	@$(WITH_JAVA) .venv/bin/jupyter lab notebooks

notebook-outputs: $(STAMP) ## run the notebooks and write what they show into them
	@$(PY) -c 'import nbclient, ipywidgets' 2>/dev/null || bash scripts/setup.sh dev,notebooks
	@$(WITH_JAVA) $(PY) scripts/notebooks.py

clean: ## remove what builds, tests and the demo leave behind; .venv stays
	rm -rf build dist demo-cluster spark-warehouse metastore_db derby.log artifacts .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
