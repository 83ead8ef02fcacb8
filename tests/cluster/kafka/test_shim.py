"""``import kafka`` returns sparklog.kafka. Each test runs a process of its own, since the hook is global."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import create_cluster

ROOT = Path(__file__).resolve().parents[3]

INSTALLED = {  # a stand-in for kafka-python, with a program that uses its public names
    "__init__.py": "from kafka.real import KafkaProducer\n",
    "real.py": "class KafkaProducer: pass\n",
    "__main__.py": "import kafka\nprint('main', kafka.KafkaProducer.__module__)\n",
    "cli/__init__.py": "from kafka import KafkaProducer\n",
    "cli/show.py": "import sys\nfrom . import KafkaProducer\nprint(KafkaProducer.__module__, sys.argv[1:])\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the stand-in for kafka-python, like site-packages."""
    for name, text in INSTALLED.items():
        path = tmp_path / "site" / "kafka" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "site"


def run(*arguments: str, path: Path | None = None, code: int = 0, **environment: Any) -> str:
    result = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{ROOT}:{path}" if path else str(ROOT), "PATH": "/usr/bin:/bin", **environment},
        timeout=60,
    )
    assert result.returncode == code, result.stderr
    return (result.stdout or result.stderr).strip()


def python(code: str, path: Path | None = None, **environment: Any) -> list[str]:
    return run("-c", code, path=path, **environment).splitlines()


def test_import_kafka_returns_sparklogs_modules(site: Path) -> None:
    program = """
import sparklog.kafka
package = sparklog.kafka.install()
import kafka, kafka.errors, kafka.coordinator.assignors.range
from kafka import KafkaProducer
from kafka.structs import TopicPartition
import sparklog
print(kafka is package is sparklog.kafka, kafka.errors is sparklog.kafka.errors)
print(KafkaProducer is sparklog.Producer, TopicPartition is sparklog.TopicPartition)
print(kafka.coordinator.assignors.range.__name__, sparklog.kafka.errors.__spec__.name)
"""
    assert python(program, site) == [
        "True True",
        "True True",
        "sparklog.kafka.coordinator.assignors.range sparklog.kafka.errors",
    ]


def test_import_kafka_alone_makes_submodules_available_as_attributes() -> None:
    code = """
import sparklog.kafka
sparklog.kafka.install()
import kafka
print(kafka.errors.KafkaError.__name__, kafka.structs.TopicPartition.__name__, kafka.admin.NewTopic.__name__)
print(kafka.consumer.KafkaConsumer.__name__, kafka.producer.KafkaProducer.__name__, kafka.protocol.__name__)
"""
    assert python(code) == ["KafkaError TopicPartition NewTopic", "Consumer Producer sparklog.kafka.protocol"]


def test_installing_twice_changes_nothing() -> None:
    program = """
import sys, sparklog.kafka
before = len(sys.meta_path)
sparklog.kafka.install(); sparklog.kafka.install()
import kafka
sparklog.kafka.install()
print(len(sys.meta_path) - before, kafka is sparklog.kafka)
"""
    assert python(program) == ["1 True"]


def test_install_is_refused_after_the_real_kafka_was_imported(site: Path) -> None:
    program = """
import kafka, sys, sparklog.kafka
before = list(sys.meta_path)
try:
    sparklog.kafka.install()
except sparklog.kafka.errors.IllegalStateError as error:
    print(error)
print(before == sys.meta_path, kafka.KafkaProducer.__module__)
"""
    message, unchanged = python("import sparklog.kafka.errors\n" + program, site)
    assert str(site / "kafka" / "__init__.py") in message
    assert "before anything imports it" in message
    assert unchanged == "True kafka.real"


def test_a_module_for_network_connections_is_not_found_with_a_reason(site: Path) -> None:
    (site / "kafka" / "conn.py").write_text("print('the real one')")
    program = """
import sparklog.kafka
sparklog.kafka.install()
try:
    import kafka.conn
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    [line] = python(program, site)
    assert line.startswith("kafka.conn No module named 'kafka.conn' in sparklog.kafka")


def test_broker_addresses_map_to_the_root_of_the_call_or_the_environment(tmp_path: Path) -> None:
    create_cluster(str(tmp_path / "log"))
    program = """
import sparklog.kafka
sparklog.kafka.install({})
from kafka import KafkaProducer
with KafkaProducer(bootstrap_servers=["kafka-1:9092", "kafka-2:9092"]) as producer:
    print(producer.send("orders", b"v").get(30).offset)
"""
    assert python(program.format(repr(str(tmp_path / "log")))) == ["0"]
    assert python(program.format(""), SPARKLOG_BOOTSTRAP_SERVER=str(tmp_path / "log")) == ["1"]


def test_a_broker_address_is_refused_as_root() -> None:
    failing = """
import sparklog.kafka
try:
    sparklog.kafka.install({})
    sparklog.kafka.KafkaProducer(bootstrap_servers="kafka-1:9092")
except sparklog.kafka.errors.KafkaConfigurationError as error:
    print(error)
"""
    (refused,) = python(failing.format("'localhost:9092'"))
    assert "install(root='localhost:9092'): give the one root of the cluster" in refused
    (refused,) = python(failing.format(""), SPARKLOG_BOOTSTRAP_SERVER="localhost:9092")
    assert "give the one root of the cluster" in refused


def test_without_brokers_the_root_of_the_call_precedes_that_of_the_environment(
    tmp_path: Path,
) -> None:
    create_cluster(str(tmp_path / "log"))
    program = """
import sparklog.kafka
sparklog.kafka.install({!r})
from kafka import KafkaProducer
with KafkaProducer() as producer:
    print(producer.send("orders", b"v").get(30).offset)
""".format(str(tmp_path / "log"))
    assert python(program) == ["0"]
    assert python(program, SPARKLOG_BOOTSTRAP_SERVER=str(tmp_path / "nowhere")) == ["1"]


# -- python -m sparklog.kafka.run


def test_run_reports_errors_without_a_traceback(tmp_path: Path) -> None:
    program = str(tmp_path / "program.py")
    command = ["-m", "sparklog.kafka.run", "--bootstrap-server", "localhost:9092", program]
    assert run(*command, code=2).endswith(f"error: there is no file {program!r}; to run a module, use -m")
    Path(program).touch()
    assert "error: install(root='localhost:9092'): give the one root" in run(*command, code=2)


def test_a_program_runs_with_its_own_arguments_and_folder(tmp_path: Path) -> None:
    create_cluster(str(tmp_path / "log"))
    (tmp_path / "helper.py").write_text("TOPIC = 'orders'\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom kafka import KafkaProducer\nfrom helper import TOPIC\n"
        "assert __name__ == '__main__'\n"
        "with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:\n"
        "    print(producer.send(TOPIC, sys.argv[2].encode()).get(30).offset, sys.argv)\n"
    )
    command = ["-m", "sparklog.kafka.run", "--bootstrap-server", str(tmp_path / "log"), str(program)]
    assert run(*command, "localhost:9092", "--flag") == f"0 {[str(program), 'localhost:9092', '--flag']}"


def test_run_exits_with_the_code_of_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, kafka\nsys.exit(7)\n")
    run("-m", "sparklog.kafka.run", str(program), code=7)


def test_the_programs_of_an_installed_kafka_python_use_sparklogs_clients(site: Path) -> None:
    shown = run("-m", "sparklog.kafka.run", "-m", "kafka.cli.show", "-x", "5", path=site)
    assert shown == "sparklog.client.producer.producer ['-x', '5']"
    assert run("-m", "sparklog.kafka.run", "-m", "kafka", path=site) == "main sparklog.client.producer.producer"


def test_programs_of_kafka_python_are_not_found_if_it_is_not_installed() -> None:
    program = """
import sparklog.kafka, sys
sys.path = [entry for entry in sys.path if "site-packages" not in entry]
sparklog.kafka.install()
try:
    import kafka.cli
except ModuleNotFoundError as error:
    print(error)
"""
    [line] = python(program)
    assert "which is not installed" in line


def test_install_is_refused_while_a_submodule_of_the_real_kafka_is_imported(site: Path) -> None:
    program = """
import sys
import kafka.real
del sys.modules["kafka"]
import sparklog.kafka
try:
    sparklog.kafka.install()
except sparklog.errors.IllegalStateError as error:
    print(error)
del sys.modules["kafka.real"]
import kafka.cli
del sys.modules["kafka"], sys.modules["kafka.real"]
print(sparklog.kafka.install().__name__)
"""
    refusal, package = python(program, site)
    assert refusal.startswith("kafka.real was already imported, from ")
    assert package == "sparklog.kafka"
