"""Engines: each runs recorded commands on a driver by one method."""
