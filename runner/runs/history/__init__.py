"""``--history``: the runs of a folder. Nothing is stored but the page, ``index.html``.

runs      the folders -> ``Run``, from ``run.json`` and ``summary.json`` of each; lines over time
listing   the runs on a terminal
page      ``index.html``, with charts
"""
