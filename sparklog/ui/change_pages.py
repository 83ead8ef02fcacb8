"""The pages of a change: its form, the confirmation that says what will happen, and what happened.

Rules: a form without a confirmation changes nothing; one whose plan has changed since is shown again. Not for: the
changes (``changes``), and whose forms count (``app``).
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping

from sparklog.client.admin.client import AdminClient
from sparklog.coordinator.same_topics import CoordinatorOfTopics
from sparklog.errors import InvalidRequestError, SparklogError, StorageError
from sparklog.types import printable
from sparklog.ui.changes import CHANGES, ChangePlan, PlannedChange
from sparklog.ui.site import SitePage, Visit

logger = logging.getLogger(__name__)

_CONFIRMED = "confirmed"


def show_change(visit: Visit, form: Mapping[str, str] | None) -> SitePage:
    """Return the form of a change, or, if that was sent, its confirmation or its result."""
    change = CHANGES.get(visit.path["change"])
    if change is None:
        raise InvalidRequestError("there is no such change")
    if form is None:
        return _show_form(visit, change, visit.query.parameters, "")
    fields = {field.name: form.get(field.name, "") for field in change.fields}
    with AdminClient(cluster=visit.cluster.coordinator) as admin:
        try:
            plan = change.plan(visit, admin, fields)
        except StorageError:
            raise
        except SparklogError as error:
            return _show_form(visit, change, fields, error.message)
        confirmed = form.get(_CONFIRMED, "")
        if not hmac.compare_digest(confirmed.encode(), plan.digest.encode()):
            return _show_plan(visit, change, fields, plan, has_changed=bool(confirmed))
    coordinator = CoordinatorOfTopics(visit.cluster.coordinator, visit.state, plan.topic_ids)
    with AdminClient(cluster=coordinator) as admin:
        done = change.execute(visit, admin, fields)
    logger.warning("%s of %s: %s", change.title, visit.name, printable(done))
    return SitePage("changed.html", {"title": change.title, "done": done, "href": plan.href})


def _show_form(visit: Visit, change: PlannedChange, values: Mapping[str, str], problem: str) -> SitePage:
    known = {field.name: values.get(field.name, "") for field in change.fields}
    subject = known.get("group") or known.get("topic") or visit.name
    shown = {"title": change.title, "change": change, "values": known, "problem": problem, "subject": subject}
    return SitePage("change.html", shown, 400 if problem else 200)


def _show_plan(
    visit: Visit, change: PlannedChange, values: Mapping[str, str], plan: ChangePlan, has_changed: bool
) -> SitePage:
    shown = {"title": change.title, "change": change, "values": values, "plan": plan, "has_changed": has_changed}
    return SitePage("confirm.html", shown)
