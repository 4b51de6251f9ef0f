"""``--history``: the runs of a folder. Nothing is stored but the page, ``index.html``.

runs      the folders -> ``Run``, from ``run.json`` and ``summary.json`` of each
listing   the runs on a terminal
trends    which runs belong to one line over time, and which statuses changed
page      ``index.html``, with the charts of ``chart``
"""
