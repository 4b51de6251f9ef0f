"""``--ddp``: several processes of one job, whose gradients torch's DistributedDataParallel averages."""
