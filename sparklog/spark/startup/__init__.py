"""What Spark's Python processes on one machine run when they start: ``sitecustomize`` in this folder.

Rules: nothing else lies here, since the folder is in their ``PYTHONPATH`` (``session.python_path``).
Not for: executors on other machines.
"""
