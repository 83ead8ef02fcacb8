"""Says once that Spark reads a DataFrame by the plan of an earlier query, where the log has grown since.

Spark asks a Python source for a plan when the first query of a DataFrame begins, and keeps it with the DataFrame, a
temporary view or the static side of a join: later queries read what was there then. Only a query with a filter to hand
over is planned by itself, which is what ``sparklog.read`` sees to, and tables of the catalog are looked up by every
query. A task cannot help a plan that is old, but it can tell: a process that has read by this plan in another query
looks once at the log.

Rules: warns at most once in a process for each plan; whatever fails is nobody's error. Not for: streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from sparklog.errors import SparklogError
from sparklog.protocol.state import State
from sparklog.spark.options import TO_LATEST, SourceOptions

logger = logging.getLogger(__name__)

EXECUTION_ID = "spark.sql.execution.id"
"""The local property that holds the id of a query: each action has another."""
MAX_PLANS = 1000
"""plans that a process remembers."""


class PlanIdentity(NamedTuple):
    """Which plan a range belongs to, and where its partition's log ended when it was made."""

    plan_id: str
    log_end: int


_first_query: dict[str, str] = {}
_said: set[str] = set()


def warn_of_reuse(
    plan: PlanIdentity, query: str, topic: str, partition: int, options: SourceOptions, look: Callable[[], State]
) -> None:
    """Warn if this process has read by the plan in another query before, and the partition has grown since.

    ``look`` gives the newest state of the cluster, and is called only then.
    """
    if not query or options.ending != TO_LATEST or plan.plan_id in _said:
        return
    if _first_query.setdefault(plan.plan_id, query) == query:
        while len(_first_query) > MAX_PLANS:
            _first_query.pop(next(iter(_first_query)))
        return
    try:
        end = look().partition(topic, partition).high_watermark
    except SparklogError:
        return
    if end > plan.log_end:
        if len(_said) >= MAX_PLANS:
            _said.clear()
        _said.add(plan.plan_id)
        logger.warning(
            "%s-%s is read up to offset %s as an earlier query of this DataFrame or view found it, and its log ends at "
            "%s now: Spark keeps the plan of a format('sparklog') without a filter. Every query looks up what is read "
            "by sparklog.read(...), with spark.sql.python.filterPushdown.enabled=true, and tables in SQL "
            "(CREATE TABLE ... USING sparklog)",
            topic,
            partition,
            plan.log_end,
            end,
        )
