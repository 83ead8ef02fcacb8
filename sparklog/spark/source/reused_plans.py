"""Warn once if Spark reads a DataFrame by the plan of an earlier query although the log has grown since.

Spark asks a Python source for a plan when the first query of a DataFrame starts, and keeps it with the DataFrame, a
temporary view or the static side of a join: later queries read the records of that time. Only a query with a filter to
push down is planned again, which ``sparklog.read`` ensures, and tables of the catalog are planned for every
query. A task cannot renew an old plan, but it can detect it: a process that has read by this plan in another query
checks the log once.

Rules: warns at most once per process and plan; best effort. Not for: streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from sparklog.errors import SparklogError
from sparklog.protocol.state import State
from sparklog.spark.options import TO_LATEST, SourceOptions
from sparklog.store.process_local import ProcessTable

logger = logging.getLogger(__name__)

EXECUTION_ID = "spark.sql.execution.id"
"""The local property that holds the id of a query; every action has its own."""
MAX_PLANS = 1000
"""plans that a process remembers."""


class PlanIdentity(NamedTuple):
    """The plan that a range belongs to, and the end of its partition's log when it was planned."""

    plan_id: str
    log_end: int


_first_query: ProcessTable[str, str] = ProcessTable()
"""By plan; empty once this process has warned."""


def warn_of_reuse(
    plan: PlanIdentity, query: str, topic: str, partition: int, options: SourceOptions, get_state: Callable[[], State]
) -> None:
    """Warn if this process has read by the plan in an earlier query, and the partition has grown since.

    ``get_state`` returns the newest state of the cluster; it is called only for an earlier query's plan.
    """
    if not query or options.ending != TO_LATEST:
        return
    with _first_query.held:
        queries = _first_query.entries
        first = queries.setdefault(plan.plan_id, query)
        while len(queries) > MAX_PLANS:
            queries.pop(next(iter(queries)))
    if first in (query, ""):
        return
    try:
        end = get_state().partition(topic, partition).high_watermark
    except SparklogError:
        return
    if end > plan.log_end:
        with _first_query.held:
            queries = _first_query.entries
            queries[plan.plan_id] = ""
        logger.warning(
            "%s-%s is read only up to offset %s, the end of its log at an earlier query of this DataFrame or view; it "
            "ends at %s now: Spark keeps the plan of a format('sparklog') without a filter. To plan every query again, "
            "use sparklog.read(...) with spark.sql.python.filterPushdown.enabled=true, or a table in SQL "
            "(CREATE TABLE ... USING sparklog)",
            topic,
            partition,
            plan.log_end,
            end,
        )
