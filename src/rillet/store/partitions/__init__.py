"""Partitioned streams: one logical stream over several keys, whose entries are distributed by a field.

    layout      the form: names of the keys, the hash, and the hash in which the store has it
    scripts     the steps that a server must execute as one, in Lua
    upkeep      creation, repartition, the groups of new partitions, deletion: commands without I/O
    share       the partitions that a consumer owns, and the time until which it owns them
    delivery    the commands of a consumer: rillet.store.consuming.delivery for one partition after the other
    stream      PartitionedStream
    group       PartitionedGroup, PartitionedConsumer

Nothing here is imported before `Store.partitioned` is called. docs/partitions.md describes the use.
"""
