"""Finds out whether a folder is, or is inside of, the location of a broker.

The owner of a location deletes what it does not know there. So nothing else may be put into one: no other cluster, no
mirror that may become one, no location of another cluster.

Not for: locations of the same cluster, whose addresses are in its log (``protocol.decide.brokers``).
"""

from __future__ import annotations

from sparklog.errors import DuplicateBrokerRegistrationError, ObjectNotFoundError, SparklogError
from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.store.location import IDENTITY_KEY


def check_outside_locations(store: Store) -> None:
    """Raise DuplicateBrokerRegistrationError if a folder above this one is the location of a broker.

    Only folders of this machine are looked at: the others would take a request each, for which there may be no
    right."""
    folder = store.root
    while store.is_local and (above := folder.rpartition("/")[0] or "/") != folder:
        folder = above
        check_no_location(LocalStore(folder), store.root)


def check_no_location(store: Store, path: str = "") -> None:
    """Raise DuplicateBrokerRegistrationError if a store is the location of a broker; StorageError if it cannot be
    read."""
    try:
        store.info(IDENTITY_KEY)
    except ObjectNotFoundError:
        return
    except SparklogError:
        if not path:
            raise
        return  # a folder above that may not be read
    inside = f"{path} is inside of {store.root}, which" if path else store.root
    raise DuplicateBrokerRegistrationError(
        f"{inside} is the location of a broker (it has {IDENTITY_KEY}), whose cluster deletes what it does not know "
        f"there; give another location, or delete that {IDENTITY_KEY} if no cluster uses the location any more",
        path=path or store.root,
    )
