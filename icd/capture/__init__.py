"""Capture: commands of queues inside a block are recorded instead of executed.

What happens at each call is in C: icd/native/record.c appends a command, freeze.c freezes a launch.
"""
