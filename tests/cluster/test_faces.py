"""Every face of the golden clusters stays as it is, to the byte, unless a change of it is wanted.

``tests/golden/faces.py`` makes them; run it after such a change, and review its difference.
"""

from __future__ import annotations

import pytest

from tests.golden.faces import CLUSTERS, kept_faces, read_faces


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_cluster_shows_what_it_showed(cluster: str) -> None:
    shown, kept = read_faces(cluster), kept_faces(cluster)
    assert list(shown) == list(kept)
    for name, text in shown.items():
        assert text == kept[name], f"{cluster}: {name} differs; if that is wanted, run tests/golden/faces.py"
