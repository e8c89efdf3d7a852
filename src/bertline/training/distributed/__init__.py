"""Distributed training: the process group, gradient reduction, optimizer sharding and FSDP."""
