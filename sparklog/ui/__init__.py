"""The web page of ``sparklog ui``: clusters shown from their commit logs, in a browser, without other servers.

    views/       pure: state and system tables become the values that templates show
    templates/   HTML, escaped by default; static/ has the style sheet and a small script
    follower     follows one cluster; record_search reads records within bounds
    pages        one function for each page; app has the routes, guard the rules of access, server runs it

Rules: nothing is loaded from elsewhere, no inline script or style. It needs the extra ``ui``; no other part of the
package imports it. Not for: what tables hold (``monitoring``), changes of a cluster (``AdminClient``, ``Producer``).
"""
